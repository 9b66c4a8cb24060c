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
	// maxContent is the maximum length of a message's content and of a session's instructions, in Unicode code points.
	maxContent = 10_000
	// maxMetadata is the maximum size of the metadata of a session or a message, in bytes as JSON. Metadata is stored with
	// every message and returned with every page of history.
	maxMetadata = 16 << 10
)

// WrongMetadata is the reason in the validation error for metadata that [ValidMetadata] rejects.
const WrongMetadata = "must be an object of at most 16 KiB as JSON"

// MessageRequest is a message in a client's request. A nil field was left out.
type MessageRequest struct {
	Content      *string
	Role, OnBusy *string
	Metadata     json.RawMessage
}

// CheckMessage checks a client's message and returns it as a new message of the session. The role defaults to user, and OnBusy
// to enqueue. The error is an [Error] that names the field.
func CheckMessage(session string, r MessageRequest) (conversation.NewMessage, error) {
	m := conversation.NewMessage{
		SessionID: session, Role: conversation.User, OnBusy: conversation.Enqueue, Metadata: r.Metadata,
	}
	switch {
	case r.Content == nil:
		return m, Invalid("content", Required)
	case WrongText(*r.Content) != "":
		return m, Invalid("content", WrongText(*r.Content))
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

// WrongText returns the reason in the validation error for a content or for instructions; "" if the text is valid.
func WrongText(text string) string {
	switch {
	case strings.TrimSpace(text) == "":
		return "must not be empty or only spaces"
	case len(text) > maxContent && utf8.RuneCountInString(text) > maxContent:
		return "must have at most 10,000 characters"
	}
	return ""
}

// ValidMetadata reports whether metadata is empty or an object of at most 16 KiB. The caller must have checked that metadata
// is valid JSON.
func ValidMetadata(metadata []byte) bool {
	return len(metadata) == 0 || metadata[0] == '{' && len(metadata) <= maxMetadata
}

// SendIdempotency is [Idempotency] for a message. REST and sockets share it: a client can repeat over REST a send that
// was lost on a socket, and the reverse. OnBusy is ignored: a repeat with another OnBusy is the same request.
func SendIdempotency(name string, key *string, m conversation.NewMessage) (*conversation.Idempotency, error) {
	m.OnBusy, m.Idempotency = "", nil
	return Idempotency(name, key, m)
}

// Idempotency returns the key and the digest of a request. With these, the store recognises a repeated request. Idempotency
// returns nil if key is nil. name is the header or field that holds the key, for error messages.
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

// ValidToken reports whether s has 1 to 128 visible ASCII characters. Clients' request ids and idempotency keys must pass this
// check, because they are stored, logged or sent back.
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

// Owner returns the owner of the data that a principal may access: the principal's account and mode.
func Owner(p auth.Principal) conversation.Owner {
	return conversation.Owner{Account: p.Account, Mode: conversation.Mode(p.Mode)}
}
