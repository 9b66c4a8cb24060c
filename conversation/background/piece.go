package background

import (
	"context"
	"slices"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
)

// pageSize is how many messages are read at once of those that no turn has listed: with a short page the summary of a long
// history takes more trips than calls to the model, with a long one most of what is read is not needed yet.
const pageSize = 100

// piece is what one call to the model summarises.
type piece struct {
	messages []prompt.Message // those that are sent to the model
	tokens   int              // of messages
	last     string           // id of the last message that the summary will cover
	count    int              // how many messages it will cover more than the one before
}

func (p *piece) add(m prompt.Message) {
	p.count++
	p.last = m.ID
	if !m.Skip {
		p.messages = append(p.messages, m)
		p.tokens += m.Tokens
	}
}

func (p *piece) clone() piece {
	c := *p
	c.messages = slices.Clone(p.messages)
	return c
}

// knownPiece returns a piece of the messages that f has, with their texts.
func (s *Summaries) knownPiece(ctx context.Context, owner conversation.Owner, f *prompt.Fit, due window.Batch) (*piece, error) {
	var places []int
	for i := due.From; i < due.To; i++ {
		if !f.Messages[i].Skip {
			places = append(places, i)
		}
	}
	if err := ReadTexts(ctx, s.Store, owner, f, places); err != nil {
		return nil, err
	}
	var p piece
	for _, m := range f.Messages[due.From:due.To] {
		p.add(m)
	}
	return &p, nil
}

// earlierPiece returns the oldest exchanges that are in no summary, of the messages before those that f has; nil if there are
// none.
func (s *Summaries) earlierPiece(ctx context.Context, owner conversation.Owner, f *prompt.Fit) (*piece, error) {
	page, err := s.Store.Messages(ctx, owner, f.Session.ID, conversation.MessageQuery{From: f.Summary.Last, Ascending: true, Limit: pageSize})
	if err != nil {
		return nil, err
	}
	limit := window.SummaryInputLimit(f.Session.Context.MaxTokens)
	var whole, p piece // p has one exchange more, which the end of the page may cut
	for i := range page.Messages {
		m := prompt.MessageOf(&page.Messages[i])
		if len(f.Messages) > 0 && m.ID >= f.Messages[0].ID {
			break
		}
		if !m.Answers {
			whole = p.clone()
		}
		p.add(m)
		if p.tokens > limit && whole.count > 0 {
			return &whole, nil
		}
	}
	if p.count == 0 {
		return nil, nil
	}
	return &p, nil
}

// ReadTexts reads the texts of the messages at these places of f that are not known, in one trip. It returns
// conversation.ErrMessageNotFound if some of them are gone.
func ReadTexts(ctx context.Context, store conversation.ContextStore, owner conversation.Owner, f *prompt.Fit, places []int) error {
	ids := f.Missing(places)
	if len(ids) == 0 {
		return nil
	}
	messages, err := store.MessagesByID(ctx, owner, f.Session.ID, ids)
	if err != nil {
		return err
	}
	if !f.Fill(places, messages) {
		return conversation.ErrMessageNotFound
	}
	return nil
}
