package background

import (
	"context"
	"slices"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
)

// pageSize is the number of messages that earlierPiece reads at once. With a shorter page, many pieces would be smaller
// than one call to the model allows. A longer page would mostly hold messages that the piece does not need.
const pageSize = 100

// piece holds the messages that one call to the model summarises.
type piece struct {
	messages []prompt.Message // without messages that are never sent
	tokens   int              // the tokens of messages
	last     string           // id of the last message that the new summary covers
	count    int              // number of messages that the new summary covers and the previous one did not
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

// knownPiece returns a piece with the messages of one batch of f.Messages. It reads the texts that f lacks.
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

// earlierPiece returns a piece with the oldest exchanges that are in no summary and come before the newest messages of f. The piece
// is limited by one page and by the input of one call. earlierPiece returns nil if no such exchange is left.
func (s *Summaries) earlierPiece(ctx context.Context, owner conversation.Owner, f *prompt.Fit) (*piece, error) {
	page, err := s.Store.Messages(ctx, owner, f.Session.ID, conversation.MessageQuery{From: f.Summary.Last, Ascending: true, Limit: pageSize})
	if err != nil {
		return nil, err
	}
	limit := f.Size().SummaryInputLimit()
	var whole, p piece // whole has the complete exchanges; p also has the exchange that the loop is reading
	// A page is also bounded in bytes, so it may end between a message and the reply to it.
	torn := page.More && page.Messages[len(page.Messages)-1].Role != conversation.Assistant
	messages := make([]prompt.Message, len(page.Messages))
	for i := range page.Messages {
		messages[i] = prompt.MessageOf(&page.Messages[i])
	}
	prompt.SkipUnanswered(messages)
	newest := f.Newest()
	for _, m := range messages {
		if newest != "" && m.ID >= newest {
			torn = false
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
	switch {
	case p.count == 0:
		return nil, nil
	case torn && whole.count > 0:
		return &whole, nil
	}
	return &p, nil
}

// ReadTexts reads the texts that f lacks at these places of f.Messages, in one round trip. It returns
// conversation.ErrMessageNotFound if a message is gone.
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
