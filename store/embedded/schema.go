package embedded

import (
	"bytes"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"parley/conversation"
)

// These are the buckets of the file. In the keys, OWNER is the encoding of appendOwner, ids are ASCII text, and | joins two parts
// without a separator. Each part except the last has a fixed length or begins with its length. So the entries of one owner or
// session are adjacent, and no other entries are among them. Numbers in brackets are lengths in bytes; numbers in keys are
// big-endian. values.go describes the values; API keys are JSON.
const (
	// sessionsBucket: OWNER | session id → session. Ids sort by creation time. A list reads the bucket backwards, from newest to
	// oldest.
	sessionsBucket = "sessions"
	// messagesBucket: OWNER | session id | message id → message, then its number (number.go). The content of a streaming reply is
	// in the journal, not here.
	messagesBucket = "messages"
	// indexBucket: OWNER | session id | message id → indexed message. A streaming reply has no entry. The messages of a session
	// with the policy fifo have entries only for their system messages.
	indexBucket = "index"
	// summariesBucket: OWNER | session id → summary.
	summariesBucket = "summaries"
	// usersBucket: OWNER | length of user id (2) | user id | session id → nothing. Lists the sessions of a user.
	usersBucket = "users"
	// expiryBucket: expiresAt (8) | OWNER | session id → nothing. The next session to expire comes first.
	expiryBucket = "expiry"
	// idempotencyBucket: OWNER | idempotency key → request.
	idempotencyBucket = "idempotency"
	// idempotentBucket: OWNER | session id | idempotency key → nothing. Lists the requests that are removed with a session.
	idempotentBucket = "idempotent"
	// forgetBucket: expires (8) | OWNER | idempotency key → nothing. The next request to expire comes first.
	forgetBucket = "forget"
	// liveBucket: OWNER | session id → live turn.
	liveBucket = "live"
	// unsettledBucket: OWNER | hash (32, see unsettledKey) → live turn, with only its Prompt. If a session is removed while its
	// turn is live, the turn is here until its usage is counted.
	unsettledBucket = "unsettled"
	// usageBucket: OWNER | hour (8) → counts of usage (appendUsage).
	usageBucket = "usage"
	// storedBucket: OWNER | hour (8) → the number of the owner's sessions that expire in this hour, and their bytes.
	storedBucket = "stored"
	// keysBucket: OWNER | key id → auth.Key as JSON.
	keysBucket = "keys"
	// keyOrderBucket: OWNER | createdAt (8) | key id → nothing. A list of keys reads the bucket backwards, from newest to oldest.
	keyOrderBucket = "keyorder"
	// keyEndsBucket: OWNER | end (8) | key id → nothing. end is the time at which the key was revoked or expires, or neverEnds.
	// The key that ended first comes first, and active keys come last.
	keyEndsBucket = "keyends"
	// auditBucket: OWNER | at (8) → auditValue as JSON. A list of entries reads the bucket backwards, from newest to oldest.
	auditBucket = "audit"
	// secretsBucket: hash of a secret (32) → OWNER | key id.
	secretsBucket = "secrets"
	// accountsBucket: length of account (2) | account → tier. An account is created with its first key.
	accountsBucket = "accounts"
	// daysBucket: account → day number (8) | count (8). The count is the number of requests with the account's test keys on that
	// day.
	daysBucket = "days"
	// metaBucket: "schema" → schemaVersion; upgradeKey → the position of an upgrade (upgrade.go); "probe" → time of the last probe
	// of a failing disk, which nobody reads.
	metaBucket = "meta"

	schemaKey = "schema"
	probeKey  = "probe"
	// schemaVersion changes when an older program would misread the file, because programs refuse unknown versions. Version 1 had
	// API keys by their hash, without rotation; Open refuses it. Version 2 had tagged values (schema2.go). Version 3 had records
	// without checksums. Open changes 2 and 3 to 4.
	schemaVersion = "4"
)

func allBuckets() []string {
	return []string{
		sessionsBucket, messagesBucket, indexBucket, summariesBucket, usersBucket, expiryBucket, idempotencyBucket, idempotentBucket, forgetBucket,
		liveBucket, unsettledBucket, usageBucket, storedBucket, keysBucket, keyOrderBucket, keyEndsBucket, auditBucket, secretsBucket,
		accountsBucket, daysBucket, metaBucket,
	}
}

// ref identifies a session.
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

// cutOwner decodes an owner that appendOwner has encoded. rest is the remainder of the key.
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

// cutExpiry decodes a key that expiryKey has made.
func cutExpiry(key []byte) (expires conversation.Time, at ref, ok bool) {
	if len(key) < 8 {
		return 0, ref{}, false
	}
	owner, session, ok := cutOwner(key[8:])
	return conversation.Time(binary.BigEndian.Uint64(key)), ref{owner, string(session)}, ok
}

// reading is the transaction that reading methods use. now is the time at which the transaction began.
type reading struct {
	bolt *bbolt.Tx
	now  conversation.Time

	last    ref // the session of the last call of sessionKey
	lastKey []byte
}

// sessionKey returns at.key(). Most operations use the key of one session several times. The caller must not change the key.
func (r *reading) sessionKey(at ref) []byte {
	if r.lastKey == nil || r.last != at {
		r.last, r.lastKey = at, slices.Clip(at.key())
	}
	return r.lastKey
}

// session returns a session, or ErrSessionNotFound if it does not exist or has expired.
func (r *reading) session(at ref) (conversation.Session, error) {
	value := r.bucket(sessionsBucket).Get(r.sessionKey(at))
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
		r.checkAbsent(at, id)
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

// span iterates over the keys with a common prefix, in either direction. The cost of a step does not depend on the number of
// keys.
type span struct {
	cursor *bbolt.Cursor
	of     records
	prefix []byte
}

func (r *reading) span(bucket string, prefix []byte) span {
	of := r.bucket(bucket)
	return span{of.bolt.Cursor(), of, prefix}
}

// within returns the key without the prefix, and the value. ok is false outside the span.
func (s span) within(key, record []byte) (suffix, value []byte, ok bool) {
	if key == nil || !bytes.HasPrefix(key, s.prefix) {
		s.beyond(key, record)
		return nil, nil, false
	}
	return key[len(s.prefix):], s.of.unseal(key, record), true
}

// beyond verifies the record next to the span, because it may be a record of the span with a damaged key. In
// messagesBucket, beyond verifies nothing: the numbers show that a message is missing, and damage to another session
// must not matter.
func (s span) beyond(key, record []byte) {
	if key != nil && s.of.name != messagesBucket {
		s.of.unseal(key, record)
	}
}

// from moves to the first key with a suffix greater than or equal to suffix.
func (s span) from(suffix string) ([]byte, []byte, bool) {
	seek := append(s.prefix[:len(s.prefix):len(s.prefix)], suffix...)
	key, record := s.cursor.Seek(seek)
	if key == nil || !bytes.Equal(key, seek) { // as in records.Get
		before, recordBefore := s.of.previous(s.cursor, seek, key)
		s.beyond(before, recordBefore)
		if before != nil && key != nil {
			key, record = s.cursor.Next()
		} else {
			// If there is no record before, previous may have moved the cursor to the first record or to an empty page.
			key, record = s.cursor.Seek(seek)
		}
	}
	return s.within(key, record)
}

// before moves to the last key with a suffix less than suffix. If suffix is "", it moves to the last key of the span.
func (s span) before(suffix string) ([]byte, []byte, bool) {
	seek := s.prefix[:len(s.prefix):len(s.prefix)]
	if suffix == "" {
		seek = append(seek, 0xFF) // greater than every suffix: ids are ASCII, and times begin with a byte below 0x80
	} else {
		seek = append(seek, suffix...)
	}
	key, record := s.cursor.Seek(seek)
	s.beyond(key, record)
	return s.within(s.of.previous(s.cursor, seek, key))
}

func (s span) next() ([]byte, []byte, bool) { return s.within(s.cursor.Next()) }

func (s span) prev() ([]byte, []byte, bool) { return s.within(s.cursor.Prev()) }
