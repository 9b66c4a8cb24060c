package api

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"parley/auth"
	"parley/conversation"
)

const (
	// maxContent is the public limit of a message, in characters: Unicode code points, not bytes.
	maxContent = 10_000
	// maxMetadata is the most metadata that a session or a message may carry, in bytes as JSON. It is stored with every
	// message and returned with every page of history.
	maxMetadata = 16 << 10
)

// WrongMetadata is the reason of a validation error for metadata that [ValidMetadata] rejects.
const WrongMetadata = "must be an object of at most 16 KiB as JSON"

// MessageRequest is a message as a client sends it; nil fields were left out.
type MessageRequest struct {
	Content      *string
	Role, OnBusy *string
	Metadata     json.RawMessage
}

// CheckMessage returns the message to send into a session.
func CheckMessage(session string, r MessageRequest) (conversation.NewMessage, error) {
	m := conversation.NewMessage{
		SessionID: session, Role: conversation.User, OnBusy: conversation.Enqueue, Metadata: r.Metadata,
	}
	switch {
	case r.Content == nil:
		return m, Invalid("content", Required)
	case strings.TrimSpace(*r.Content) == "":
		return m, Invalid("content", "must not be empty or only spaces")
	case len(*r.Content) > maxContent && utf8.RuneCountInString(*r.Content) > maxContent:
		return m, Invalid("content", "must have at most 10,000 characters")
	case !ValidMetadata(r.Metadata):
		return m, Invalid("metadata", WrongMetadata)
	}
	m.Content = *r.Content
	if r.Role != nil {
		m.Role = conversation.Role(*r.Role)
		if m.Role != conversation.User && m.Role != conversation.System {
			return m, Invalid("role", "must be user or system")
		}
	}
	if r.OnBusy != nil {
		m.OnBusy = conversation.OnBusy(*r.OnBusy)
		switch m.OnBusy {
		case conversation.Enqueue, conversation.Reject, conversation.Interrupt:
		default:
			return m, Invalid("onBusy", "must be enqueue, reject or interrupt")
		}
	}
	return m, nil
}

// ValidMetadata reports whether metadata, which is valid JSON or empty, is an object that is small enough.
func ValidMetadata(metadata []byte) bool {
	return len(metadata) == 0 || metadata[0] == '{' && len(metadata) <= maxMetadata
}

// SendIdempotency is [Idempotency] for a message. REST and the socket share it, so a send that was lost on one can be
// repeated on the other. How the send meets a busy session does not change what it asks for.
func SendIdempotency(name string, key *string, m conversation.NewMessage) (*conversation.Idempotency, error) {
	m.OnBusy, m.Idempotency = "", nil
	return Idempotency(name, key, m)
}

// Idempotency returns how a repeat of a request is recognised: by its key and a digest of what it asks for. It is nil
// without a key. name is the header or field that holds the key, for errors.
func Idempotency(name string, key *string, request any) (*conversation.Idempotency, error) {
	if key == nil {
		return nil, nil
	}
	if !ValidToken(*key) {
		return nil, Invalid(name, "must have 1 to 128 visible ASCII characters")
	}
	encoded, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return &conversation.Idempotency{Key: *key, Digest: sha256.Sum256(encoded)}, nil
}

// ValidToken reports whether a client's request id or idempotency key has 1 to 128 visible ASCII characters: it is
// stored, logged and sent back.
func ValidToken(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return 0 < len(s) && len(s) <= 128
}

// ValidMessageID reports whether id has the form of a message's id.
func ValidMessageID(id string) bool { return conversation.ValidID(conversation.MessagePrefix, id) }

// Owner returns whose data a principal works with.
func Owner(p auth.Principal) conversation.Owner {
	return conversation.Owner{Account: p.Account, Mode: conversation.Mode(p.Mode)}
}
