package embedded

import (
	"encoding/binary"
	"math"

	"parley/conversation"
	"parley/store/record"
	"parley/stream"
)

// This file reads the values of schema 2. Each field was a tag (1 byte) and a value. The value is a zigzag varint if the tag is
// at least 128, otherwise a length and that number of bytes. Fields with the value zero were omitted. A value is written in the
// present format when it changes, and sessions with all their values are removed within 24 hours. Delete this source file when no
// database of schema 2 needs to be opened any more.

type oldTag byte

// oldNumbers is the first tag of a number. Fields with lower tags are bytes.
const oldNumbers oldTag = 128

// These are the tags of a message.
const (
	messageRole oldTag = iota + 1
	messageStatus
	messageContent
	messageMetadata
	messageUsage
	messageFinishReason
	messageContext
	messageError
)

const (
	messageTokens oldTag = iota + oldNumbers
	messageCreatedAt
)

// These are the tags of a message's error, context and usage.
const (
	errorCode oldTag = iota + 1
	errorMessage
	contextPolicy
	rangeFirst
	rangeLast
	contextKept
	contextDropped
	contextInSummary
	contextSkipped
	contextSummaryFault
	contextSimilarity
)

const (
	usagePrompt oldTag = iota + oldNumbers
	usageCompletion
	usageTotal
	usageEstimated
	contextPromptTokens
	contextMaxTokens
	rangeCount
	contextSummarised
)

// These are the tags of the fields of a session.
const (
	sessionUserID oldTag = iota + 1
	sessionMetadata
	sessionPolicy
	sessionHead
	sessionCleared
	sessionLive
	sessionAsked
)

const (
	sessionCreatedAt oldTag = iota + oldNumbers
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

// These are the tags of a record.LiveTurn.
const (
	liveMessageID oldTag = iota + 1
)

const (
	liveFence oldTag = iota + oldNumbers
	livePrompt
)

// These are the tags of a record.Request.
const (
	idempotencyDigest oldTag = iota + 1
	idempotencySession
	idempotencyAsked
	idempotencyReply
)

const (
	idempotencyExpires oldTag = iota + oldNumbers
)

// These are the tags of an indexed message.
const (
	indexRole oldTag = iota + 1
	indexTerms
	indexVector
)

const (
	indexTokens oldTag = iota + oldNumbers
	indexSkip
	indexPriority // the bits of a float64
)

// These are the tags of a summary.
const (
	summaryText oldTag = iota + 1
	summaryLast
)

const (
	summaryTokens oldTag = iota + oldNumbers
	summaryCount
	summaryReplaced
)

// readTagged calls take for each field of a value, with the bytes b or the number n.
func readTagged(value []byte, take func(t oldTag, b []byte, n int64) error) error {
	for len(value) > 0 {
		t := oldTag(value[0])
		value = value[1:]
		if t >= oldNumbers {
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

// known returns b as a string. If b equals one of the constants, it returns the constant, which saves a copy.
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

func oldMessage(value []byte, sessionID, id string) (conversation.Message, error) {
	m := conversation.Message{ID: id, SessionID: sessionID}
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
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
			return oldUsage(b, m.Usage)
		case messageContext:
			m.Context = new(conversation.ContextReport)
			return oldContext(b, m.Context)
		case messageError:
			m.Error = new(conversation.ReplyError)
			return oldError(b, m.Error)
		}
		return nil
	})
	return m, err
}

func oldUsage(value []byte, u *conversation.Usage) error {
	return readTagged(value, func(t oldTag, _ []byte, n int64) error {
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

func oldContext(value []byte, c *conversation.ContextReport) error {
	return readTagged(value, func(t oldTag, b []byte, n int64) error {
		switch t {
		case contextPolicy:
			c.Policy = policy(b)
		case contextPromptTokens:
			c.PromptTokens = int(n)
		case contextMaxTokens:
			c.MaxTokens = int(n)
		case contextKept:
			return oldRange(b, &c.Kept)
		case contextDropped:
			return oldRange(b, &c.Dropped)
		case contextInSummary:
			return oldRange(b, &c.InSummary)
		case contextSkipped:
			return oldRange(b, &c.Skipped)
		case contextSummarised:
			c.Summarised = true
		case contextSummaryFault:
			c.SummaryFault = known(b, conversation.SummaryLate, conversation.SummaryFailed)
		case contextSimilarity:
			c.Similarity = known(b, conversation.ByWords, conversation.ByEmbeddings)
		}
		return nil
	})
}

func oldRange(value []byte, m *conversation.MessageRange) error {
	return readTagged(value, func(t oldTag, b []byte, n int64) error {
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

func oldError(value []byte, e *conversation.ReplyError) error {
	return readTagged(value, func(t oldTag, b []byte, _ int64) error {
		switch t {
		case errorCode:
			e.Code = string(b)
		case errorMessage:
			e.Message = string(b)
		}
		return nil
	})
}

func oldSession(value []byte, id string) (conversation.Session, error) {
	s := conversation.Session{ID: id}
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
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

func oldLifetime(value []byte) (created, expires conversation.Time, err error) {
	err = readTagged(value, func(t oldTag, _ []byte, n int64) error {
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

func oldLiveTurn(value []byte) (record.LiveTurn, error) {
	var l record.LiveTurn
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
		switch t {
		case liveMessageID:
			l.ReplyID = string(b)
		case liveFence:
			l.Fence = n
		case livePrompt:
			l.Prompt = int(n)
		}
		return nil
	})
	return l, err
}

func oldRequest(value []byte) (record.Request, error) {
	var i record.Request
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
		switch t {
		case idempotencyDigest:
			copy(i.Digest[:], b)
		case idempotencySession:
			i.Session = string(b)
		case idempotencyAsked:
			i.Turn.SentID = string(b)
		case idempotencyReply:
			i.Turn.ReplyID = string(b)
		case idempotencyExpires:
			i.Expires = conversation.Time(n)
		}
		return nil
	})
	return i, err
}

func oldIndexed(value []byte, id string) (conversation.Indexed, error) {
	x := conversation.Indexed{ID: id}
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
		switch t {
		case indexRole:
			x.Role = role(b)
		case indexTokens:
			x.Tokens = int(n)
		case indexSkip:
			x.Skip = true
		case indexPriority:
			x.Priority = math.Float64frombits(uint64(n))
		case indexTerms:
			return x.Terms.UnmarshalBinary(b)
		case indexVector:
			x.Vector = append(x.Vector, b...)
		}
		return nil
	})
	return x, err
}

func oldSummary(value []byte) (conversation.Summary, error) {
	var s conversation.Summary
	err := readTagged(value, func(t oldTag, b []byte, n int64) error {
		switch t {
		case summaryText:
			s.Text = string(b)
		case summaryTokens:
			s.Tokens = int(n)
		case summaryLast:
			s.Last = string(b)
		case summaryCount:
			s.Count = int(n)
		case summaryReplaced:
			s.Replaced = int(n)
		}
		return nil
	})
	return s, err
}
