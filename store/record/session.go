package record

import (
	"encoding/binary"

	"parley/conversation"
)

// These are the flags of a session.
const (
	isCompressed    = 1 << iota // CompressionEnabled
	hasTurns                    // the fields that turns change follow; all are zero in a session that never had a turn
	hasInstructions             // the instructions follow, at the end of the earlier parts
	hasModel                    // the configuration of the model follows
)

// AppendSession appends the record of s to b and returns the extended slice. The record lacks ID. CreatedAt and ExpiresAt come
// first, for ReadLifetime.
func AppendSession(b []byte, s *conversation.Session) []byte {
	flags := byte(0)
	if s.Context.CompressionEnabled {
		flags |= isCompressed
	}
	if s.MessageCount != 0 || s.HistoryTokens != 0 || s.TokenUsage != (conversation.TokenUsage{}) || s.Fence != 0 || s.Head != "" ||
		s.Cleared != "" || s.LiveReply != "" || s.LiveMessage != "" {
		flags |= hasTurns
	}
	if s.Instructions != "" || s.InstructionTokens != 0 {
		flags |= hasInstructions
	}
	if !s.Model.IsZero() {
		flags |= hasModel
	}
	b = binary.AppendVarint(b, int64(s.CreatedAt))
	b = binary.AppendVarint(b, int64(s.ExpiresAt))
	b = append(b, flags)
	b = appendText(b, s.UserID)
	b = binary.AppendVarint(b, int64(s.LastActivity))
	b = appendText(b, []byte(s.Metadata))
	b = appendInts(b, s.Context.MaxTokens)
	b = appendText(b, string(s.Context.RetentionPolicy))
	if flags&hasTurns != 0 {
		b = appendTurns(b, s)
	}
	if flags&hasInstructions != 0 {
		b = appendInts(appendText(b, s.Instructions), s.InstructionTokens)
	}
	if flags&hasModel != 0 {
		b = AppendModel(b, &s.Model)
	}
	return b
}

// appendTurns appends the fields that turns change.
func appendTurns(b []byte, s *conversation.Session) []byte {
	b = appendInts(b, s.MessageCount, s.TokenUsage.Total, s.TokenUsage.Prompt, s.TokenUsage.Completion, s.HistoryTokens)
	b = binary.AppendVarint(b, s.Fence)
	b = appendText(b, s.Head)
	b = appendText(b, s.Cleared)
	b = appendText(b, s.LiveReply)
	return appendText(b, s.LiveMessage)
}

// ReadSession decodes a record of AppendSession into s, and leaves the ID unchanged. It returns ErrMalformed if the record is cut
// short.
func ReadSession[T string | []byte](record T, s *conversation.Session) error {
	r := reader[T]{rest: record}
	s.CreatedAt, s.ExpiresAt = r.time(), r.time()
	flags := r.byte()
	s.UserID, s.LastActivity, s.Metadata = r.text(), r.time(), r.bytes()
	s.Context = conversation.ContextConfig{
		MaxTokens: r.int(), RetentionPolicy: r.policy(), CompressionEnabled: flags&isCompressed != 0,
	}
	if flags&hasTurns != 0 {
		r.turns(s)
	}
	if flags&hasInstructions != 0 {
		s.Instructions, s.InstructionTokens = r.text(), r.int()
	}
	if flags&hasModel != 0 {
		r.model(&s.Model)
	}
	return r.err()
}

// turns reads the fields that turns change.
func (r *reader[T]) turns(s *conversation.Session) {
	s.MessageCount = r.int()
	s.TokenUsage = conversation.TokenUsage{Total: r.int(), Prompt: r.int(), Completion: r.int()}
	s.HistoryTokens, s.Fence = r.int(), r.int64()
	s.Head, s.Cleared = r.text(), r.text()
	s.LiveReply, s.LiveMessage = known(r.raw(), "", s.Head), r.text()
}

// ReadLifetime decodes CreatedAt and ExpiresAt from the record of a session. It allocates nothing, because a usage report reads
// the lifetime of every session of an owner.
func ReadLifetime[T string | []byte](record T) (created, expires conversation.Time, err error) {
	r := reader[T]{rest: record}
	created, expires = r.time(), r.time()
	return created, expires, r.err()
}

func (r *reader[T]) time() conversation.Time { return conversation.Time(r.int64()) }

// LiveTurn identifies a live turn and estimates its prompt. The embedded store reads all live turns when it opens its file, and
// so finds the orphans.
type LiveTurn struct {
	ReplyID string
	Fence   int64
	// Prompt is an estimate of the prompt's tokens. If the process dies, the turn is charged this number of prompt tokens.
	Prompt int
}

// AppendLiveTurn appends the encoding of t to b and returns the extended slice.
func AppendLiveTurn(b []byte, t *LiveTurn) []byte {
	b = appendText(b, t.ReplyID)
	b = binary.AppendVarint(b, t.Fence)
	return appendInts(b, t.Prompt)
}

// ReadLiveTurn decodes a record of AppendLiveTurn into t. It returns ErrMalformed if the record is cut short.
func ReadLiveTurn[T string | []byte](record T, t *LiveTurn) error {
	r := reader[T]{rest: record}
	t.ReplyID, t.Fence, t.Prompt = r.text(), r.int64(), r.int()
	return r.err()
}

// Request is the outcome of a request with an idempotency key: the request created a session, or began a turn in a session.
type Request struct {
	Digest  [32]byte              // of the request
	Session string                // id of the session
	Turn    conversation.Replayed // zero if the request created the session
	Expires conversation.Time
}

// AppendRequest appends the encoding of q to b and returns the extended slice.
func AppendRequest(b []byte, q *Request) []byte {
	b = append(b, q.Digest[:]...)
	b = binary.AppendVarint(b, int64(q.Expires))
	b = appendText(b, q.Session)
	b = appendText(b, q.Turn.SentID)
	return appendText(b, q.Turn.ReplyID)
}

// ReadRequest decodes a record of AppendRequest into q. It returns ErrMalformed if the record is cut short.
func ReadRequest[T string | []byte](record T, q *Request) error {
	r := reader[T]{rest: record}
	copy(q.Digest[:], r.take(uint64(len(q.Digest))))
	q.Expires = r.time()
	q.Session, q.Turn.SentID, q.Turn.ReplyID = r.text(), r.text(), r.text()
	return r.err()
}
