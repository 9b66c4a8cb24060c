package embedded

import (
	"encoding/binary"
	"fmt"

	"parley/conversation"
)

// The messages of a session are numbered from 1 to Session.MessageCount. The number stands at the end of a message's value,
// before the checksum. A damaged page above the messages can hide some of them from bbolt, although each message that bbolt still
// finds is intact. Then there is a gap in the numbers, and a reader gets a *DamageError instead of a shortened history.

// numberLength is the length of a message's number.
const numberLength = 4

const messageIDLength = len(conversation.MessagePrefix) + idSuffix

func appendNumber(value []byte, n int) []byte { return binary.BigEndian.AppendUint32(value, uint32(n)) }

// cutNumber returns the value of a message without its number.
func cutNumber(value []byte) []byte { return value[:max(0, len(value)-numberLength)] }

func numberOf(value []byte) int {
	if len(value) < numberLength {
		return 0
	}
	return int(binary.BigEndian.Uint32(value[len(value)-numberLength:]))
}

// numbers assigns numbers to messages that have none, in the order of their keys.
type numbers struct {
	session string
	last    int
}

// newNumbers returns numbers that continue after the message with the key after. That message must have a number. after
// may be "".
func newNumbers(b records, after string) numbers {
	if b.name != messagesBucket || len(after) < messageIDLength {
		return numbers{}
	}
	return numbers{after[:len(after)-messageIDLength], numberOf(b.Get([]byte(after)))}
}

func (n *numbers) next(key []byte) int {
	if session := string(key[:max(0, len(key)-messageIDLength)]); session != n.session {
		*n = numbers{session: session}
	}
	n.last++
	return n.last
}

// missing panics with a *DamageError: messages of a session cannot be found.
func missing(at ref, where string) {
	panic(damageIn(messagesBucket, keyText(messagesBucket, at.key()), "messages are missing "+where))
}

// sequence checks that consecutive messages have consecutive numbers.
type sequence struct {
	at   ref
	last int // the number of the previous message
	step int // 1 for ascending order, -1 for descending order
}

// follow checks the next message, and panics with a *DamageError if messages are missing before it.
func (q *sequence) follow(value []byte, id []byte) {
	n := numberOf(value)
	if n != q.last+q.step {
		missing(q.at, fmt.Sprintf("next to %.*s", messageIDLength, id))
	}
	q.last = n
}

// end panics with a *DamageError unless the previous message was the last one in this order. count is the number of
// messages of the session.
func (q *sequence) end(count int) {
	if q.step > 0 && q.last != count || q.step < 0 && q.last != 1 {
		missing(q.at, fmt.Sprintf("after number %d of %d", q.last, count))
	}
}

// newSequence returns a sequence that begins at the first message of the session or, if ascending is false, at the last
// one. count is the number of messages of the session.
func newSequence(at ref, ascending bool, count int) sequence {
	if ascending {
		return sequence{at: at, step: 1}
	}
	return sequence{at: at, last: count + 1, step: -1}
}

// sequence returns the sequence for a page of messages. If the page begins in the middle of the session, sequence looks
// up the number of the message that comes just before the page in the page's order.
func (r *reading) sequence(at ref, query *conversation.MessageQuery, count int) sequence {
	q := newSequence(at, query.Ascending, count)
	if query.From == "" {
		return q
	}
	messages := r.span(messagesBucket, at.key())
	id, value, ok := messages.from(query.From)
	next := count + 1 // number of the message From or, if that does not exist, of the next newer message
	if ok {
		next = numberOf(value)
	}
	exists := ok && string(id) == query.From
	switch {
	case exists && !query.Inclusive:
		q.last = next
	case exists:
		q.last = next - q.step
	case query.Ascending:
		q.last = 0
		if _, value, ok := messages.before(query.From); ok {
			q.last = numberOf(value)
		}
	default:
		q.last = next
	}
	return q
}

// checkAbsent panics with a *DamageError if the session has a gap where the message id would be.
func (r *reading) checkAbsent(at ref, id string) {
	if !conversation.ValidID(conversation.MessagePrefix, id) {
		return
	}
	record := r.bucket(sessionsBucket).Get(at.key())
	if record == nil {
		return
	}
	session, err := readSession(record, at.session)
	if err != nil {
		return
	}
	before, after := 0, session.MessageCount+1
	messages := r.span(messagesBucket, at.key())
	if _, value, ok := messages.before(id); ok {
		before = numberOf(value)
	}
	if _, value, ok := messages.from(id); ok {
		after = numberOf(value)
	}
	if after != before+1 {
		missing(at, "where a message was expected")
	}
}
