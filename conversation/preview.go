package conversation

import (
	"context"
	"slices"

	"parley/conversation/window"
)

// Preview is what a message would be answered from, if it were sent now (design section 2, dry run of the context).
type Preview struct {
	Context ContextReport
	// Messages are those that the window looked at, oldest first, and the new one, without an id, last.
	Messages []PreviewMessage
}

// PreviewMessage is a message that the window looked at, and what would become of it.
type PreviewMessage struct {
	ID       string   `json:"messageId,omitempty"`
	Role     Role     `json:"role"`
	Tokens   int      `json:"tokens"` // as the window counts them: with window.MessageOverhead
	Decision Decision `json:"decision"`
	Reason   string   `json:"reason"`
}

// Decision says whether a message is sent to the model.
type Decision string

// The decisions: sent word for word, left out because it does not fit, left out because it is never sent.
const (
	Kept    Decision = "kept"
	Dropped Decision = "dropped"
	Skipped Decision = "skipped"
)

// previewPage is how many messages are read at a time.
const previewPage = 100

// Preview fits a message into the context window as a turn would, and changes nothing. It returns *OverflowError where a send
// would. A turn that begins meanwhile makes it a picture of a moment ago, and a reply that is being written counts for
// the text that the store has of it.
func (s *Service) Preview(ctx context.Context, owner Owner, sessionID string, role Role, content string) (Preview, error) {
	message := Message{Role: role, Content: content, Tokens: s.Count(content)}
	session, history, err := s.newest(ctx, owner, sessionID)
	if err != nil {
		return Preview{}, err
	}
	config, tokens := session.Context, message.Tokens+window.MessageOverhead
	if current, ok := window.Check(config.MaxTokens, config.CompressionEnabled, session.HistoryTokens, tokens); !ok {
		return Preview{}, &OverflowError{CurrentTokens: current, MaxTokens: config.MaxTokens}
	}
	session.MessageCount += 2 // as BeginTurn would return it
	p := fit(Begun{Session: session, Message: message, History: history})
	preview := Preview{Context: p.report, Messages: make([]PreviewMessage, 0, len(history)+1)}
	for i, m := range history {
		preview.Messages = append(preview.Messages, decided(m, i >= p.first))
	}
	preview.Messages = append(preview.Messages, PreviewMessage{Role: role, Tokens: tokens, Decision: Kept, Reason: "the new message"})
	return preview, nil
}

// decided says what becomes of a message of the history.
func decided(m Message, kept bool) PreviewMessage {
	d := PreviewMessage{ID: m.ID, Role: m.Role, Tokens: m.Tokens + window.MessageOverhead, Decision: Dropped, Reason: "it is older than what fits the window"}
	switch {
	case neverSent(m):
		d.Decision, d.Reason = Skipped, "a reply that failed or has no text is never sent"
	case kept:
		d.Decision, d.Reason = Kept, "it fits the window"
	}
	return d
}

// newest returns a session and what BeginTurn would return as the turn's History, oldest first.
func (s *Service) newest(ctx context.Context, owner Owner, sessionID string) (Session, []Message, error) {
	query := MessageQuery{Limit: previewPage}
	var session Session
	var found []Message // newest first
	for left := -1; ; {
		page, err := s.Store.Messages(ctx, owner, sessionID, query)
		if err != nil {
			return Session{}, nil, err
		}
		if query.From == "" {
			session = page.Session
			left = window.Budget(session.Context.MaxTokens)
		}
		for _, m := range page.Messages {
			found = append(found, m)
			if !neverSent(m) {
				left -= m.Tokens + window.MessageOverhead
			}
			if left < 0 {
				break
			}
		}
		if left < 0 || !page.More {
			break
		}
		query.From = page.Messages[len(page.Messages)-1].ID
	}
	slices.Reverse(found)
	return session, found, nil
}
