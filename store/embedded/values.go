package embedded

import (
	"encoding/binary"
	"errors"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/record"
)

// A checksum follows each value (checksum.go). The number of a message is between its value and the checksum
// (number.go).
//
// The values of sessions, messages, indexed messages, summaries, live turns and requests begin with valueFormat. Some kinds then
// have fields that only this store needs. The record (package record) comes after these fields. A value of schema 2 begins with a
// tag instead, which is 1 to 11 or at least 128 (schema2.go). So the first byte tells the formats apart.

// valueFormat is the first byte of a value since schema 3.
const valueFormat = 0x13

var errRecord = errors.New("embedded: a stored value is malformed")

// isOld reports whether a value has the format of schema 2. An empty value has that format: it has no fields.
func isOld(value []byte) bool { return len(value) == 0 || value[0] != valueFormat }

// putValue stores a value: valueFormat and the bytes that write appends. The value stays in the arena until the commit, because
// bbolt does not copy it.
func (w *writing) putValue(bucket string, key []byte, write func(b []byte) []byte) error {
	start := len(w.arena)
	w.arena = write(append(w.arena, valueFormat))
	return w.putFrom(bucket, key, start)
}

func (w *writing) putSession(at ref, s *conversation.Session) error {
	return w.putValue(sessionsBucket, w.sessionKey(at), func(b []byte) []byte { return record.AppendSession(b, s) })
}

func readSession(value []byte, id string) (conversation.Session, error) {
	if isOld(value) {
		return oldSession(value, id)
	}
	s := conversation.Session{ID: id}
	err := record.ReadSession(value[1:], &s)
	return s, err
}

// readLifetime returns the creation and expiry times of an encoded session. It does not decode the other fields.
func readLifetime(value []byte) (created, expires conversation.Time, err error) {
	if isOld(value) {
		return oldLifetime(value)
	}
	return record.ReadLifetime(value[1:])
}

// putMessage stores a message: its creation time, its record, then its number.
func (w *writing) putMessage(at ref, m *conversation.Message, number int) error {
	write := func(b []byte) []byte {
		return appendNumber(record.AppendMessage(binary.AppendVarint(b, int64(m.CreatedAt)), m), number)
	}
	key := messageKey(at, m.ID)
	if len(m.Content) <= largeContent {
		return w.putValue(messagesBucket, key, write)
	}
	w.wrote = true
	b := w.bucket(messagesBucket)
	return b.bolt.Put(key, sealed(b.sum, key, write([]byte{valueFormat})))
}

// largeContent is the size, in bytes, of the largest content that putMessage writes to the arena. Larger values would make the
// arena grow, and growing copies all values of the transaction.
const largeContent = 64 << 10

func readMessage(value []byte, sessionID, id string) (conversation.Message, error) {
	value = cutNumber(value)
	if isOld(value) {
		return oldMessage(value, sessionID, id)
	}
	m, rest, err := readCreated(value, sessionID, id)
	if err != nil {
		return m, err
	}
	err = record.ReadMessage(rest, &m)
	return m, err
}

// readForPrompt does the same as readMessage, but leaves out the fields that no prompt needs: Metadata, Usage, Context and Error.
func readForPrompt(value []byte, sessionID, id string) (conversation.Message, error) {
	value = cutNumber(value)
	if isOld(value) {
		m, err := oldMessage(value, sessionID, id)
		m.Metadata, m.Usage, m.Context, m.Error = nil, nil, nil, nil
		return m, err
	}
	m, rest, err := readCreated(value, sessionID, id)
	if err != nil {
		return m, err
	}
	err = record.ReadForPrompt(rest, &m)
	return m, err
}

// recordBytes returns the size of the record in the value of a message. For a value of schema 2, it returns the value's size.
func recordBytes(value []byte) int {
	value = cutNumber(value)
	if isOld(value) {
		return len(value)
	}
	_, size := binary.Varint(value[1:])
	return len(value) - 1 - size
}

// readCreated returns the message with the fields that its record lacks, and the record.
func readCreated(value []byte, sessionID, id string) (m conversation.Message, rest []byte, err error) {
	created, size := binary.Varint(value[1:])
	if size <= 0 {
		return m, nil, errRecord
	}
	return conversation.Message{ID: id, SessionID: sessionID, CreatedAt: conversation.Time(created)}, value[1+size:], nil
}

// putIndexed stores an indexed message: the length of its vector, the vector, then its record and its terms.
func (w *writing) putIndexed(key []byte, x *conversation.Indexed) error {
	return w.putValue(indexBucket, key, func(b []byte) []byte {
		b = record.AppendIndexed(appendBytes(b, x.Vector), x)
		b, _ = x.Terms.AppendBinary(b) // AppendBinary never fails here
		return b
	})
}

// readIndexed reads an indexed message.
func readIndexed(value []byte, id string, reader *record.IndexedReader[[]byte]) (conversation.Indexed, error) {
	if isOld(value) {
		return oldIndexed(value, id)
	}
	vector, rest, ok := cutBytes(value[1:])
	if !ok {
		return conversation.Indexed{}, errRecord
	}
	x := conversation.Indexed{ID: id, Vector: append([]byte(nil), vector...)}
	err := reader.Read(rest, &x)
	return x, err
}

// putSummary stores a summary: the length of the id of its last message, the id, then its record.
func (w *writing) putSummary(at ref, s *conversation.Summary) error {
	return w.putValue(summariesBucket, w.sessionKey(at), func(b []byte) []byte {
		return record.AppendSummaryFigures(record.AppendSummaryText(appendBytes(b, []byte(s.Last)), s), s)
	})
}

// readSummary decodes a summary. For an empty value it returns the zero value.
func readSummary(value []byte) (conversation.Summary, error) {
	if isOld(value) {
		return oldSummary(value)
	}
	last, rest, ok := cutBytes(value[1:])
	if !ok {
		return conversation.Summary{}, errRecord
	}
	s := conversation.Summary{Last: string(last)}
	err := record.ReadSummary(rest, &s)
	return s, err
}

// putLiveTurn stores a turn in one of two buckets: liveBucket for a live turn, unsettledBucket for a turn that must still be
// settled.
func (w *writing) putLiveTurn(bucket string, key []byte, turn record.LiveTurn) error {
	return w.putValue(bucket, key, func(b []byte) []byte { return record.AppendLiveTurn(b, &turn) })
}

func readLiveTurn(value []byte) (turn record.LiveTurn, err error) {
	if isOld(value) {
		return oldLiveTurn(value)
	}
	err = record.ReadLiveTurn(value[1:], &turn)
	return turn, err
}

func (w *writing) putRequest(key []byte, request *record.Request) error {
	return w.putValue(idempotencyBucket, key, func(b []byte) []byte { return record.AppendRequest(b, request) })
}

func readRequest(value []byte) (request record.Request, err error) {
	if isOld(value) {
		return oldRequest(value)
	}
	err = record.ReadRequest(value[1:], &request)
	return request, err
}

func appendBytes(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cutBytes decodes bytes that appendBytes has encoded. rest is the remainder of the value.
func cutBytes(value []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(value)
	if size <= 0 || n > uint64(len(value)-size) {
		return nil, nil, false
	}
	return value[size:][:n], value[size:][n:], true
}

// appendUsage appends the encoding of a bucket of usage. The format is compact, because buckets are kept for 400 days and most
// counts are zero. Each count that is not zero becomes two varints: the difference between its field number and the previous
// field number, and the count. An hour of a busy owner takes about 150 bytes.
func appendUsage(b []byte, counts *usage.Bucket) []byte {
	last := usage.Field(0)
	for field, n := range counts.All() {
		b = binary.AppendVarint(binary.AppendUvarint(b, uint64(field-last)), n)
		last = field
	}
	return b
}

// readUsage decodes a value that appendUsage has encoded into b, which must be empty.
func readUsage(value []byte, b *usage.Bucket) error {
	field := usage.Field(0)
	for len(value) > 0 {
		step, size := binary.Uvarint(value)
		if size <= 0 {
			return errRecord
		}
		n, more := binary.Varint(value[size:])
		if more <= 0 {
			return errRecord
		}
		field += usage.Field(step)
		b.AddField(field, n)
		value = value[size+more:]
	}
	return nil
}
