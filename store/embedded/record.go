package embedded

import (
	"encoding/binary"
	"errors"

	"parley/conversation"
	"parley/stream"
)

// Records are runs of fields: a tag (1), then the field's bytes with their length before them, or for a tag below
// firstNumber a number; lengths and numbers are varints. Fields that are zero are left out, fields that are unknown are passed
// over, and what the key says (ids) is not repeated. A turn reads back as many messages as its window holds, so reading one
// must be cheap: as JSON it took most of a turn's time.

var errRecord = errors.New("embedded: a record of the store cannot be read")

// tag says which field follows. A tag keeps its value and is never used for another field: new ones go to the end of
// their list.
type tag byte

// numbers is where the tags of numbers begin; those below are of bytes.
const numbers tag = 128

// The fields of a message.
const (
	messageRole tag = iota + 1
	messageStatus
	messageContent
	messageMetadata
	messageUsage
	messageFinishReason
	messageContext
	messageError
)

const (
	messageTokens tag = iota + numbers
	messageCreatedAt
)

// The fields of what a message may have.
const (
	errorCode tag = iota + 1
	errorMessage
	contextPolicy
	rangeFirst
	rangeLast
	contextKept
	contextDropped
	contextFolded
	contextSkipped
	contextFolding
	contextSimilarity
)

const (
	usagePrompt tag = iota + numbers
	usageCompletion
	usageTotal
	usageEstimated
	contextPromptTokens
	contextMaxTokens
	rangeCount
	contextSummarised
)

// The fields of a session.
const (
	sessionUserID tag = iota + 1
	sessionMetadata
	sessionPolicy
	sessionHead
	sessionCleared
	sessionLive
	sessionAsked
)

const (
	sessionCreatedAt tag = iota + numbers
	sessionExpiresAt
	sessionLastActivity
	sessionMessageCount
	sessionTotal
	sessionPrompt
	sessionCompletion
	sessionMaxTokens
	sessionCompression
	sessionHistoryTokens
	sessionFence
)

// The fields of a liveRecord.
const (
	liveMessageID tag = iota + 1
)

const (
	liveFence tag = iota + numbers
	livePrompt
)

// The fields of an idempotencyRecord.
const (
	idempotencyDigest tag = iota + 1
	idempotencySession
	idempotencyAsked
	idempotencyReply
)

const (
	idempotencyExpires tag = iota + numbers
)

// record is a record that is being written.
type record []byte

func (r *record) bytes(t tag, b []byte) {
	if len(b) > 0 {
		r.nested(t, b)
	}
}

func (r *record) text(t tag, s string) {
	if s != "" {
		*r = append(binary.AppendUvarint(append(*r, byte(t)), uint64(len(s))), s...)
	}
}

// nested writes bytes also where there are none: that they are there says something.
func (r *record) nested(t tag, b []byte) {
	*r = append(binary.AppendUvarint(append(*r, byte(t)), uint64(len(b))), b...)
}

func (r *record) number(t tag, n int64) {
	if n != 0 {
		*r = binary.AppendVarint(append(*r, byte(t)), n)
	}
}

func (r *record) int(t tag, n int) { r.number(t, int64(n)) }

func (r *record) bool(t tag, b bool) {
	if b {
		r.number(t, 1)
	}
}

// read calls take for each field of a record, with its bytes or its number.
func read(value []byte, take func(t tag, b []byte, n int64) error) error {
	for len(value) > 0 {
		t := tag(value[0])
		value = value[1:]
		if t >= numbers {
			n, size := binary.Varint(value)
			if size <= 0 {
				return errRecord
			}
			value = value[size:]
			if err := take(t, nil, n); err != nil {
				return err
			}
			continue
		}
		length, size := binary.Uvarint(value)
		if size <= 0 || length > uint64(len(value)-size) {
			return errRecord
		}
		value = value[size:]
		if err := take(t, value[:length], 0); err != nil {
			return err
		}
		value = value[length:]
	}
	return nil
}

// known returns a string, without making it where it is one of a few.
func known[S ~string](b []byte, few ...S) S {
	for _, s := range few {
		if string(b) == string(s) {
			return s
		}
	}
	return S(b)
}

func role(b []byte) conversation.Role {
	return known(b, conversation.User, conversation.Assistant, conversation.System)
}

func status(b []byte) stream.State {
	return known(b, stream.Completed, stream.Streaming, stream.Cancelled, stream.Failed, stream.Interrupted)
}

func policy(b []byte) conversation.RetentionPolicy {
	return known(b, conversation.FIFO, conversation.Priority, conversation.Semantic)
}

func (r *record) message(m *conversation.Message) {
	r.text(messageRole, string(m.Role))
	r.text(messageStatus, string(m.Status))
	r.number(messageCreatedAt, int64(m.CreatedAt))
	r.int(messageTokens, m.Tokens)
	r.text(messageContent, m.Content)
	r.bytes(messageMetadata, m.Metadata)
	r.text(messageFinishReason, m.FinishReason)
	var scratch [256]byte
	inner := record(scratch[:0])
	if u := m.Usage; u != nil {
		inner.int(usagePrompt, u.Prompt)
		inner.int(usageCompletion, u.Completion)
		inner.int(usageTotal, u.Total)
		inner.bool(usageEstimated, u.Estimated)
		r.nested(messageUsage, inner)
	}
	if c := m.Context; c != nil {
		inner = inner[:0]
		inner.context(c)
		r.nested(messageContext, inner)
	}
	if e := m.Error; e != nil {
		inner = inner[:0]
		inner.text(errorCode, e.Code)
		inner.text(errorMessage, e.Message)
		r.nested(messageError, inner)
	}
}

func (r *record) context(c *conversation.ContextReport) {
	r.text(contextPolicy, string(c.Policy))
	r.int(contextPromptTokens, c.PromptTokens)
	r.int(contextMaxTokens, c.MaxTokens)
	var scratch [64]byte
	inner := record(scratch[:0])
	for _, part := range []struct {
		tag      tag
		messages conversation.MessageRange
	}{{contextKept, c.Kept}, {contextDropped, c.Dropped}, {contextFolded, c.InSummary}, {contextSkipped, c.Skipped}} {
		inner = inner[:0]
		inner.messages(part.messages)
		r.bytes(part.tag, inner)
	}
	r.bool(contextSummarised, c.Summarised)
	r.text(contextFolding, string(c.SummaryFault))
	r.text(contextSimilarity, string(c.Similarity))
}

func (r *record) messages(m conversation.MessageRange) {
	r.int(rangeCount, m.Count)
	r.text(rangeFirst, m.First)
	r.text(rangeLast, m.Last)
}

// readMessage reads a message; its ids are given.
func readMessage(value []byte, sessionID, id string) (conversation.Message, error) {
	m := conversation.Message{ID: id, SessionID: sessionID}
	err := read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case messageRole:
			m.Role = role(b)
		case messageStatus:
			m.Status = status(b)
		case messageCreatedAt:
			m.CreatedAt = conversation.Time(n)
		case messageTokens:
			m.Tokens = int(n)
		case messageContent:
			m.Content = string(b)
		case messageMetadata:
			m.Metadata = append(m.Metadata, b...)
		case messageFinishReason:
			m.FinishReason = known(b, "stop", "length")
		case messageUsage:
			m.Usage = new(conversation.Usage)
			return readUsage(b, m.Usage)
		case messageContext:
			m.Context = new(conversation.ContextReport)
			return readContext(b, m.Context)
		case messageError:
			m.Error = new(conversation.ReplyError)
			return readError(b, m.Error)
		}
		return nil
	})
	return m, err
}

func readUsage(value []byte, u *conversation.Usage) error {
	return read(value, func(t tag, _ []byte, n int64) error {
		switch t {
		case usagePrompt:
			u.Prompt = int(n)
		case usageCompletion:
			u.Completion = int(n)
		case usageTotal:
			u.Total = int(n)
		case usageEstimated:
			u.Estimated = true
		}
		return nil
	})
}

func readContext(value []byte, c *conversation.ContextReport) error {
	return read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case contextPolicy:
			c.Policy = policy(b)
		case contextPromptTokens:
			c.PromptTokens = int(n)
		case contextMaxTokens:
			c.MaxTokens = int(n)
		case contextKept:
			return readRange(b, &c.Kept)
		case contextDropped:
			return readRange(b, &c.Dropped)
		case contextFolded:
			return readRange(b, &c.InSummary)
		case contextSkipped:
			return readRange(b, &c.Skipped)
		case contextSummarised:
			c.Summarised = true
		case contextFolding:
			c.SummaryFault = known(b, conversation.SummaryLate, conversation.SummaryFailed)
		case contextSimilarity:
			c.Similarity = known(b, conversation.ByWords, conversation.ByEmbeddings)
		}
		return nil
	})
}

func readRange(value []byte, m *conversation.MessageRange) error {
	return read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case rangeCount:
			m.Count = int(n)
		case rangeFirst:
			m.First = string(b)
		case rangeLast:
			m.Last = string(b)
		}
		return nil
	})
}

func readError(value []byte, e *conversation.ReplyError) error {
	return read(value, func(t tag, b []byte, _ int64) error {
		switch t {
		case errorCode:
			e.Code = string(b)
		case errorMessage:
			e.Message = string(b)
		}
		return nil
	})
}

func (r *record) session(s *conversation.Session) {
	r.text(sessionUserID, s.UserID)
	r.number(sessionCreatedAt, int64(s.CreatedAt))
	r.number(sessionExpiresAt, int64(s.ExpiresAt))
	r.number(sessionLastActivity, int64(s.LastActivity))
	r.int(sessionMessageCount, s.MessageCount)
	r.int(sessionTotal, s.TokenUsage.Total)
	r.int(sessionPrompt, s.TokenUsage.Prompt)
	r.int(sessionCompletion, s.TokenUsage.Completion)
	r.bytes(sessionMetadata, s.Metadata)
	r.int(sessionMaxTokens, s.Context.MaxTokens)
	r.bool(sessionCompression, s.Context.CompressionEnabled)
	r.text(sessionPolicy, string(s.Context.RetentionPolicy))
	r.int(sessionHistoryTokens, s.HistoryTokens)
	r.text(sessionHead, s.Head)
	r.text(sessionCleared, s.Cleared)
	r.text(sessionLive, s.LiveReply)
	r.text(sessionAsked, s.LiveMessage)
	r.number(sessionFence, s.Fence)
}

// readSession reads a session; its id is given.
func readSession(value []byte, id string) (conversation.Session, error) {
	s := conversation.Session{ID: id}
	err := read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case sessionUserID:
			s.UserID = string(b)
		case sessionCreatedAt:
			s.CreatedAt = conversation.Time(n)
		case sessionExpiresAt:
			s.ExpiresAt = conversation.Time(n)
		case sessionLastActivity:
			s.LastActivity = conversation.Time(n)
		case sessionMessageCount:
			s.MessageCount = int(n)
		case sessionTotal:
			s.TokenUsage.Total = int(n)
		case sessionPrompt:
			s.TokenUsage.Prompt = int(n)
		case sessionCompletion:
			s.TokenUsage.Completion = int(n)
		case sessionMetadata:
			s.Metadata = append(s.Metadata, b...)
		case sessionMaxTokens:
			s.Context.MaxTokens = int(n)
		case sessionCompression:
			s.Context.CompressionEnabled = true
		case sessionPolicy:
			s.Context.RetentionPolicy = policy(b)
		case sessionHistoryTokens:
			s.HistoryTokens = int(n)
		case sessionHead:
			s.Head = string(b)
		case sessionCleared:
			s.Cleared = string(b)
		case sessionLive:
			s.LiveReply = known(b, s.Head)
		case sessionAsked:
			s.LiveMessage = string(b)
		case sessionFence:
			s.Fence = n
		}
		return nil
	})
	return s, err
}

// readLifetime reads when a session was created and expires, and no more of it.
func readLifetime(value []byte) (created, expires conversation.Time, err error) {
	err = read(value, func(t tag, _ []byte, n int64) error {
		switch t {
		case sessionCreatedAt:
			created = conversation.Time(n)
		case sessionExpiresAt:
			expires = conversation.Time(n)
		}
		return nil
	})
	return created, expires, err
}

func (r *record) live(l liveRecord) {
	r.text(liveMessageID, l.MessageID)
	r.number(liveFence, l.Fence)
	r.int(livePrompt, l.Prompt)
}

func readLive(value []byte) (liveRecord, error) {
	var l liveRecord
	err := read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case liveMessageID:
			l.MessageID = string(b)
		case liveFence:
			l.Fence = n
		case livePrompt:
			l.Prompt = int(n)
		}
		return nil
	})
	return l, err
}

func (r *record) idempotency(i *idempotencyRecord) {
	r.bytes(idempotencyDigest, i.digest[:])
	r.text(idempotencySession, i.session)
	r.text(idempotencyAsked, i.turn.SentID)
	r.text(idempotencyReply, i.turn.ReplyID)
	r.number(idempotencyExpires, int64(i.expires))
}

func readIdempotency(value []byte) (idempotencyRecord, error) {
	var i idempotencyRecord
	err := read(value, func(t tag, b []byte, n int64) error {
		switch t {
		case idempotencyDigest:
			copy(i.digest[:], b)
		case idempotencySession:
			i.session = string(b)
		case idempotencyAsked:
			i.turn.SentID = string(b)
		case idempotencyReply:
			i.turn.ReplyID = string(b)
		case idempotencyExpires:
			i.expires = conversation.Time(n)
		}
		return nil
	})
	return i, err
}
