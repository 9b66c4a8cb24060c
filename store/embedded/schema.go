package embedded

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"

	"parley/conversation"
)

// The buckets of the file. In the keys, OWNER is what appendOwner writes, ids are their characters, and | joins without a separator. Each
// part has a fixed length or says its own, so no key is a prefix of a key of another owner or session, and entries that are listed
// together are adjacent and in the order of the list. Numbers in brackets are lengths in bytes; numbers in keys are big-endian. The values are
// described in values.go; API keys are JSON.
const (
	// sessionsBucket: OWNER | session id → session. Ids sort by creation, so newest first is backwards.
	sessionsBucket = "sessions"
	// messagesBucket: OWNER | session id | message id → message. A reply that is streaming has no content here; the journal has it.
	messagesBucket = "messages"
	// indexBucket: OWNER | session id | message id → indexed message. Only of sessions whose policy is not fifo, and without the
	// reply that is streaming.
	indexBucket = "index"
	// summariesBucket: OWNER | session id → summary.
	summariesBucket = "summaries"
	// usersBucket: OWNER | length of user id (2) | user id | session id → nothing. For lists by user.
	usersBucket = "users"
	// expiryBucket: expiresAt (8) | OWNER | session id → nothing. The next session to expire comes first.
	expiryBucket = "expiry"
	// idempotencyBucket: OWNER | idempotency key → request.
	idempotencyBucket = "idempotency"
	// idempotentBucket: OWNER | session id | idempotency key → nothing. The requests of a session, to remove them with it.
	idempotentBucket = "idempotent"
	// forgetBucket: expires (8) | OWNER | idempotency key → nothing. The next request to expire comes first.
	forgetBucket = "forget"
	// liveBucket: OWNER | session id → live turn.
	liveBucket = "live"
	// unsettledBucket: OWNER | hash (32, see unsettledKey) → live turn, with its Prompt only. The turns whose session was removed while
	// they were live, until the owner's usage is settled.
	unsettledBucket = "unsettled"
	// usageBucket: OWNER | hour (8) → counts of usage (appendUsage).
	usageBucket = "usage"
	// keysBucket: OWNER | key id → auth.Key as JSON.
	keysBucket = "keys"
	// keyOrderBucket: OWNER | createdAt (8) | key id → nothing. Newest first is backwards.
	keyOrderBucket = "keyorder"
	// secretsBucket: hash of a secret (32) → OWNER | key id.
	secretsBucket = "secrets"
	// accountsBucket: length of account (2) | account → tier. An account exists from its first key on.
	accountsBucket = "accounts"
	// daysBucket: account → day number (8) | count (8). The requests of the account's test keys on the last day that had any.
	daysBucket = "days"
	// metaBucket: "schema" → schemaVersion.
	metaBucket = "meta"

	schemaKey = "schema"
	// schemaVersion changes when an older program would misread the file: it refuses a version that it does not know. 1 had keys
	// by their hash, without rotation. 2 had tagged values (schema2.go); it is read, and becomes 3 when it is opened.
	schemaVersion = "3"
)

func allBuckets() []string {
	return []string{
		sessionsBucket, messagesBucket, indexBucket, summariesBucket, usersBucket, expiryBucket, idempotencyBucket, idempotentBucket, forgetBucket,
		liveBucket, unsettledBucket, usageBucket, keysBucket, keyOrderBucket, secretsBucket, accountsBucket, daysBucket, metaBucket,
	}
}

// ref names a session.
type ref struct {
	owner   conversation.Owner
	session string
}

func appendSized(key []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(key, uint16(len(s))), s...)
}

func appendOwner(key []byte, o conversation.Owner) []byte {
	return appendSized(appendSized(key, o.Account), string(o.Mode))
}

// cutOwner is the inverse of appendOwner: rest is what follows.
func cutOwner(key []byte) (o conversation.Owner, rest []byte, ok bool) {
	account, rest, ok := cutSized(key)
	if !ok {
		return o, nil, false
	}
	mode, rest, ok := cutSized(rest)
	return conversation.Owner{Account: string(account), Mode: conversation.Mode(mode)}, rest, ok
}

func cutSized(key []byte) (s, rest []byte, ok bool) {
	if len(key) < 2 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint16(key))
	key = key[2:]
	if len(key) < n {
		return nil, nil, false
	}
	return key[:n], key[n:], true
}

func ownerKey(o conversation.Owner) []byte { return appendOwner(make([]byte, 0, 96), o) }

func (r ref) key() []byte { return append(ownerKey(r.owner), r.session...) }

func messageKey(at ref, id string) []byte { return append(at.key(), id...) }

func userKey(o conversation.Owner, user string) []byte { return appendSized(ownerKey(o), user) }

func expiryKey(expires conversation.Time, at ref) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 96), uint64(expires))
	return append(appendOwner(key, at.owner), at.session...)
}

// cutExpiry is the inverse of expiryKey.
func cutExpiry(key []byte) (expires conversation.Time, at ref, ok bool) {
	if len(key) < 8 {
		return 0, ref{}, false
	}
	owner, session, ok := cutOwner(key[8:])
	return conversation.Time(binary.BigEndian.Uint64(key)), ref{owner, string(session)}, ok
}

// reading is a transaction, as methods that read see it. now is one time for the whole transaction.
type reading struct {
	bolt *bbolt.Tx
	now  conversation.Time
}

func (r *reading) bucket(name string) *bbolt.Bucket { return r.bolt.Bucket([]byte(name)) }

// session returns a session that has not expired, else ErrSessionNotFound.
func (r *reading) session(at ref) (conversation.Session, error) {
	value := r.bucket(sessionsBucket).Get(at.key())
	if value == nil {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	s, err := readSession(value, at.session)
	if err != nil || s.ExpiresAt > r.now {
		return s, err
	}
	return conversation.Session{}, conversation.ErrSessionNotFound
}

// message returns a message, or ErrMessageNotFound.
func (r *reading) message(at ref, id string) (conversation.Message, error) {
	value := r.bucket(messagesBucket).Get(messageKey(at, id))
	if value == nil {
		return conversation.Message{}, conversation.ErrMessageNotFound
	}
	return readMessage(value, at.session, id)
}

// live returns all live turns.
func (r *reading) live() ([]conversation.TurnKey, error) {
	var all []conversation.TurnKey
	err := r.bucket(liveBucket).ForEach(func(key, value []byte) error {
		owner, session, ok := cutOwner(key)
		if !ok {
			return errRecord
		}
		l, err := readLiveTurn(value)
		if err != nil {
			return err
		}
		all = append(all, conversation.TurnKey{
			Owner: owner, SessionID: string(session), ReplyID: l.ReplyID, Fence: l.Fence,
		})
		return nil
	})
	return all, err
}

// span walks the keys with a common prefix, in either direction. The cost of a step does not depend on the number of keys.
type span struct {
	cursor *bbolt.Cursor
	prefix []byte
}

func (r *reading) span(bucket string, prefix []byte) span {
	return span{r.bucket(bucket).Cursor(), prefix}
}

// within returns the key without the prefix, and the value. ok is false past the end of the span.
func (s span) within(key, value []byte) (suffix, v []byte, ok bool) {
	if key == nil || !bytes.HasPrefix(key, s.prefix) {
		return nil, nil, false
	}
	return key[len(s.prefix):], value, true
}

// from goes to the first key whose suffix is at least this one.
func (s span) from(suffix string) ([]byte, []byte, bool) {
	return s.within(s.cursor.Seek(append(s.prefix[:len(s.prefix):len(s.prefix)], suffix...)))
}

// before goes to the last key whose suffix is below this one; with "", to the last of all.
func (s span) before(suffix string) ([]byte, []byte, bool) {
	seek := s.prefix[:len(s.prefix):len(s.prefix)]
	if suffix == "" {
		seek = append(seek, 0xFF) // above every suffix, because ids are ASCII
	} else {
		seek = append(seek, suffix...)
	}
	if key, _ := s.cursor.Seek(seek); key == nil {
		return s.within(s.cursor.Last())
	}
	return s.within(s.cursor.Prev())
}

func (s span) next() ([]byte, []byte, bool) { return s.within(s.cursor.Next()) }

func (s span) prev() ([]byte, []byte, bool) { return s.within(s.cursor.Prev()) }
