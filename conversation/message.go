package conversation

import (
	"bytes"
	"encoding/json"

	"parley/conversation/window"
	"parley/stream"
)

// Role says who speaks.
type Role string

// The roles of messages. A system message gets a reply like a user's.
const (
	User      Role = "user"
	System    Role = "system"
	Assistant Role = "assistant"
)

// Message is one message of a session. It never changes once it is stored, except for a reply that ends.
type Message struct {
	ID        string          `json:"messageId"`
	SessionID string          `json:"sessionId"`
	Role      Role            `json:"role"`
	Content   string          `json:"content"`
	Tokens    int             `json:"tokens"` // of Content; a reply has the provider's figure, if there is one
	CreatedAt Time            `json:"createdAt"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Status    stream.State    `json:"status"`
	// Only replies have Usage, FinishReason, Context and Error.
	Usage        *Usage         `json:"usage,omitempty"`
	FinishReason string         `json:"finishReason,omitempty"`
	Context      *ContextReport `json:"context,omitempty"`
	Error        *ReplyError    `json:"error,omitempty"`
	// Terms are the words of the exchange. EndTurn takes them with a reply, in sessions whose policy is semantic, and keeps
	// them in the index ([Indexed]). A message that is read has none.
	Terms window.Terms `json:"-"`
}

// Usage is what one reply used. Estimated says that we counted, because the provider gave no figures.
type Usage struct {
	Prompt     int  `json:"prompt"`
	Completion int  `json:"completion"`
	Total      int  `json:"total"`
	Estimated  bool `json:"estimated"`
}

// ReplyError says why a reply failed.
type ReplyError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// TokensInPrompt returns how many tokens a message takes in a prompt: Tokens and window.MessageOverhead, or 0 if it is never
// sent. A streaming reply counts with the Content and Tokens that it has here.
func (m *Message) TokensInPrompt() int {
	if m.neverSent() {
		return 0
	}
	return m.Tokens + window.MessageOverhead
}

// neverSent reports whether a message is left out of every prompt: a reply that failed or has no text.
func (m *Message) neverSent() bool {
	return m.Role == Assistant && (m.Status == stream.Failed || m.Content == "")
}

// AsBegun returns a reply as it was when it began: streaming and empty. Viewers that read a reply from its beginning are
// shown this, whatever has become of it.
func (m *Message) AsBegun() Message {
	return Message{ID: m.ID, SessionID: m.SessionID, Role: m.Role, CreatedAt: m.CreatedAt, Status: stream.Streaming}
}

// AsLost returns a reply as it ends if the store has lost it ([ErrReplyLost]): viewers keep what they saw, and it counts nowhere.
func (m *Message) AsLost() Message {
	lost := *m
	lost.Status, lost.Usage, lost.Error, lost.FinishReason = stream.Interrupted, &Usage{Estimated: true}, nil, ""
	return lost
}

// Created returns a message as viewers are shown it when it is created, in JSON.
func (m *Message) Created() []byte {
	if m.Role == Assistant {
		return encode(m.AsBegun())
	}
	return encode(m)
}

// Ending returns how a reply ended, as viewers are shown it.
func (m *Message) Ending() stream.Ending {
	ending := stream.Ending{State: m.Status, Message: encode(m)}
	if m.Error != nil {
		ending.Error = encode(m.Error)
	}
	return ending
}

// Entry returns a message that will not change any more, as viewers are shown it.
func (m *Message) Entry() *stream.Entry {
	entry := &stream.Entry{ID: m.ID, Created: m.Created()}
	if m.Role == Assistant {
		entry.Reply = stream.EndedReply(m.ID, m.Content, m.Ending())
	}
	return entry
}

// encode returns v as JSON without the escapes that only HTML needs. v is a plain struct, whose metadata was checked when it
// was received.
func encode(v any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}
