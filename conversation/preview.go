package conversation

import (
	"context"

	"parley/conversation/window"
	"parley/stream"
)

// Preview is what a message would be answered from, if it were sent now (design section 2, dry run of the context).
type Preview struct {
	Context ContextReport `json:"context"`
	// Summary is the summary that would be sent; "" for none.
	Summary string `json:"summary,omitempty"`
	// Messages are those that the window looked at, oldest first, and the new one, without an id, last.
	Messages []PreviewMessage `json:"messages"`
}

// PreviewMessage is a message that the window looked at, and what would become of it.
type PreviewMessage struct {
	ID       string `json:"messageId,omitempty"`
	Role     Role   `json:"role"`
	Tokens   int    `json:"tokens"`   // as the window counts them: with window.MessageOverhead
	Decision string `json:"decision"` // a window.Verdict
	Reason   string `json:"reason"`   // a window.Reason
}

// Preview fits a message into the context window as a turn would, and changes nothing. It returns *OverflowError where a send
// would. A turn that begins meanwhile makes it a picture of a moment ago, and a reply that is being written counts for
// the text that the store has of it. No model is asked but that for embeddings, as a send does: what a send would fold first is
// shown as it is before that.
func (s *Service) Preview(ctx context.Context, owner Owner, sessionID string, role Role, content string) (Preview, error) {
	message := Message{Role: role, Content: content, Tokens: s.Count(content)}
	c, err := s.Store.Context(ctx, owner, sessionID, message.Tokens)
	if err != nil {
		return Preview{}, err
	}
	config := c.Session.Context
	current, ok := window.Check(config.MaxTokens, config.CompressionEnabled, c.Session.HistoryTokens, message.TokensInPrompt())
	if !ok {
		return Preview{}, &OverflowError{CurrentTokens: current, MaxTokens: config.MaxTokens}
	}
	if n := len(c.History); n > 0 && c.History[n-1].Status == stream.Streaming {
		if reply := &c.History[n-1]; reply.Content != "" {
			reply.Tokens = s.Count(reply.Content)
			c.Session.HistoryTokens += reply.TokensInPrompt()
		}
	}
	f := newFitting(c, message)
	f.compare(s.meaning(ctx, f))
	f.plan()
	if f.result.Overflow > 0 { // by the reply that is being written: it would have to end first
		return Preview{}, &OverflowError{CurrentTokens: f.result.Overflow, MaxTokens: config.MaxTokens}
	}
	preview := Preview{Context: f.report(), Messages: make([]PreviewMessage, 0, len(f.listed)+1)}
	if f.result.SendSummary {
		preview.Summary = f.Summary.Text
	}
	for i, d := range f.result.Decisions {
		l := &f.listed[i]
		preview.Messages = append(preview.Messages, PreviewMessage{l.ID, l.role, l.Tokens, d.Verdict.String(), d.Reason.String()})
	}
	preview.Messages = append(preview.Messages, PreviewMessage{
		Role: role, Tokens: message.TokensInPrompt(), Decision: window.Kept.String(), Reason: "the new message",
	})
	return preview, nil
}
