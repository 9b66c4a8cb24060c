package conversation

import (
	"encoding/json"

	"parley/conversation/window"
	"parley/stream"
)

// Role is the role of a message's author.
type Role string

// The roles of messages. The model replies to a system message as to a user's message.
const (
	User      Role = "user"
	System    Role = "system"
	Assistant Role = "assistant"
)

// Message is one message of a session. A stored message never changes, except that a live reply grows and then ends.
type Message struct {
	ID        string          `json:"messageId"`
	SessionID string          `json:"sessionId"`
	Role      Role            `json:"role"`
	Content   string          `json:"content"`
	Tokens    int             `json:"tokens"` // tokens of Content by our count; versions before the field Usage.Reasoning stored the provider's figure for replies
	CreatedAt Time            `json:"createdAt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Status    stream.State    `json:"status"`
	// Only replies have Usage, FinishReason, Context and Error.
	Usage        *Usage         `json:"usage,omitempty"`
	FinishReason string         `json:"finishReason,omitempty"`
	Context      *ContextReport `json:"context,omitempty"`
	Error        *ReplyError    `json:"error,omitempty"`
	// Terms are the words of the exchange. Only the reply that is passed to EndTurn has Terms, and only in a session
	// with the semantic policy. EndTurn stores the Terms in the index ([Indexed]). Messages that a store returns have
	// no Terms.
	Terms window.Terms `json:"-"`
}

// Usage is the number of tokens of one call to the model. Total is the sum of Prompt and Completion. Reasoning is the part of
// Completion that the model spent on reasoning, which is not in the reply's text; 0 if the provider gave no figure. Estimated means
// that this server counted the tokens, because the provider gave no figures.
type Usage struct {
	Prompt     int  `json:"prompt"`
	Completion int  `json:"completion"`
	Reasoning  int  `json:"reasoning,omitempty"`
	Total      int  `json:"total"`
	Estimated  bool `json:"estimated"`
}

// ReplyError is the reason why a reply failed. Code is CodeContextOverflow or a code of package stream.
type ReplyError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// CodeContextOverflow is the code of a reply that failed because the model's context cannot hold the prompt. A send that the
// store refuses with [OverflowError] has the same public code.
const CodeContextOverflow = "context_overflow"

// TokensInPrompt returns the number of tokens that a message takes in a prompt: Tokens plus window.MessageOverhead, or
// 0 if the message is never sent. It does not know whether the reply to the message is Unanswered. A streaming reply from a store
// has no Tokens yet; the caller must set them first.
func (m *Message) TokensInPrompt() int {
	if m.neverSent() {
		return 0
	}
	return m.Tokens + window.MessageOverhead
}

// StoredBytes returns the number of bytes that the message counts in the quota storedBytes.
func (m *Message) StoredBytes() int { return len(m.Content) + len(m.Metadata) }

// neverSent reports whether every prompt leaves the message out: it is a reply that failed or has no text.
func (m *Message) neverSent() bool {
	return m.Role == Assistant && (m.Status == stream.Failed || m.Content == "")
}

// Unanswered reports whether the message is a reply that failed without text. Prompts then leave out the whole exchange, because
// otherwise each failed send would make the next prompt larger. The history still has both messages.
func (m *Message) Unanswered() bool {
	return m.Role == Assistant && m.Status == stream.Failed && m.Content == ""
}

// TokensInPrompts returns the number of tokens that messages take in a prompt. The messages are in the order of their ids.
func TokensInPrompts(messages []Message) (tokens int) {
	for i := range messages {
		if i+1 == len(messages) || !messages[i+1].Unanswered() {
			tokens += messages[i].TokensInPrompt()
		}
	}
	return tokens
}

// Overflow returns the error for a reply that failed with CodeContextOverflow, or nil for any other message.
func (m *Message) Overflow() *OverflowError {
	if m.Error == nil || m.Error.Code != CodeContextOverflow || m.Context == nil {
		return nil
	}
	size := m.Context.Window()
	return &OverflowError{CurrentTokens: max(m.Context.PromptTokens+(window.Size{MaxTokens: size}).ReplyRoom(), size+1), MaxTokens: size}
}

// AsBegun returns the reply in its initial state: streaming and empty. A viewer that reads a reply from the beginning
// sees this state first, even if the reply has ended.
func (m *Message) AsBegun() Message {
	return Message{ID: m.ID, SessionID: m.SessionID, Role: m.Role, CreatedAt: m.CreatedAt, Status: stream.Streaming}
}

// AsLost returns the final state of a reply that the store has lost ([ErrReplyLost]): interrupted, with the same text
// and a usage of 0.
func (m *Message) AsLost() Message {
	lost := *m
	lost.Status, lost.Usage, lost.Error, lost.FinishReason = stream.Interrupted, &Usage{Estimated: true}, nil, ""
	return lost
}

// Ending returns the reply's final state in the form that viewers see.
func (m *Message) Ending() stream.Ending {
	ending := stream.Ending{State: m.Status, Message: m.Document()}
	if m.Error != nil {
		ending.Error = encode(m.Error)
	}
	return ending
}

// Entry returns the message as a topic entry. The entry of a reply has the text and the ending in m; if the reply is
// streaming, the caller must replace the entry's Reply.
func (m *Message) Entry() *stream.Entry {
	entry := &stream.Entry{ID: m.ID, Created: m.Created()}
	if m.Role == Assistant {
		entry.Reply = stream.EndedReply(m.ID, m.Content, m.Ending())
	}
	return entry
}
