package record

import (
	"encoding/binary"

	"parley/conversation"
)

// The flags of a session.
const (
	isCompressed = 1 << iota // CompressionEnabled
	hasTurns                 // what turns change follows; a session that never had one has none of it
)

// AppendSession appends the record of a session: all but its ID. Its lifetime comes first, for ReadLifetime.
func AppendSession(b []byte, s *conversation.Session) []byte {
	flags := byte(0)
	if s.Context.CompressionEnabled {
		flags |= isCompressed
	}
	if s.MessageCount != 0 || s.HistoryTokens != 0 || s.TokenUsage != (conversation.TokenUsage{}) || s.Fence != 0 || s.Head != "" ||
		s.Cleared != "" || s.LiveReply != "" || s.LiveMessage != "" {
		flags |= hasTurns
	}
	b = binary.AppendVarint(b, int64(s.CreatedAt))
	b = binary.AppendVarint(b, int64(s.ExpiresAt))
	b = append(b, flags)
	b = appendText(b, s.UserID)
	b = binary.AppendVarint(b, int64(s.LastActivity))
	b = appendText(b, []byte(s.Metadata))
	b = appendInts(b, s.Context.MaxTokens)
	b = appendText(b, string(s.Context.RetentionPolicy))
	if flags&hasTurns == 0 {
		return b
	}
	b = appendInts(b, s.MessageCount, s.TokenUsage.Total, s.TokenUsage.Prompt, s.TokenUsage.Completion, s.HistoryTokens)
	b = binary.AppendVarint(b, s.Fence)
	b = appendText(b, s.Head)
	b = appendText(b, s.Cleared)
	b = appendText(b, s.LiveReply)
	return appendText(b, s.LiveMessage)
}

// ReadSession reads what AppendSession wrote. The ID of s stays as it is.
func ReadSession[T string | []byte](record T, s *conversation.Session) error {
	r := reader[T]{rest: record}
	s.CreatedAt, s.ExpiresAt = r.time(), r.time()
	flags := r.byte()
	s.UserID, s.LastActivity, s.Metadata = r.text(), r.time(), r.bytes()
	s.Context = conversation.ContextConfig{
		MaxTokens: r.int(), RetentionPolicy: r.policy(), CompressionEnabled: flags&isCompressed != 0,
	}
	if flags&hasTurns == 0 {
		return r.err()
	}
	s.MessageCount = r.int()
	s.TokenUsage = conversation.TokenUsage{Total: r.int(), Prompt: r.int(), Completion: r.int()}
	s.HistoryTokens, s.Fence = r.int(), r.int64()
	s.Head, s.Cleared = r.text(), r.text()
	s.LiveReply, s.LiveMessage = known(r.raw(), "", s.Head), r.text()
	return r.err()
}

// ReadLifetime reads when a session was created and when it expires, and allocates nothing: a usage report reads it of
// every session of an owner.
func ReadLifetime[T string | []byte](record T) (created, expires conversation.Time, err error) {
	r := reader[T]{rest: record}
	created, expires = r.time(), r.time()
	return created, expires, r.err()
}

func (r *reader[T]) time() conversation.Time { return conversation.Time(r.int64()) }

// LiveTurn is what a store keeps of a turn that is live, beside the session and the messages.
type LiveTurn struct {
	ReplyID string
	Fence   int64
	// Prompt is an estimate of the prompt's tokens. It is what the turn is charged if its process dies.
	Prompt int
}

// AppendLiveTurn appends the record of a live turn.
func AppendLiveTurn(b []byte, t *LiveTurn) []byte {
	b = appendText(b, t.ReplyID)
	b = binary.AppendVarint(b, t.Fence)
	return appendInts(b, t.Prompt)
}

// ReadLiveTurn reads what AppendLiveTurn wrote.
func ReadLiveTurn[T string | []byte](record T, t *LiveTurn) error {
	r := reader[T]{rest: record}
	t.ReplyID, t.Fence, t.Prompt = r.text(), r.int64(), r.int()
	return r.err()
}

// Request is what a request with an idempotency key did: it made a session, or began a turn in it.
type Request struct {
	Digest  [32]byte // of the request
	Session string
	Turn    conversation.Replayed // zero if the request made the session
	Expires conversation.Time
}

// AppendRequest appends the record of a request.
func AppendRequest(b []byte, q *Request) []byte {
	b = append(b, q.Digest[:]...)
	b = binary.AppendVarint(b, int64(q.Expires))
	b = appendText(b, q.Session)
	b = appendText(b, q.Turn.SentID)
	return appendText(b, q.Turn.ReplyID)
}

// ReadRequest reads what AppendRequest wrote.
func ReadRequest[T string | []byte](record T, q *Request) error {
	r := reader[T]{rest: record}
	copy(q.Digest[:], r.take(uint64(len(q.Digest))))
	q.Expires = r.time()
	q.Session, q.Turn.SentID, q.Turn.ReplyID = r.text(), r.text(), r.text()
	return r.err()
}
