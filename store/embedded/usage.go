package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/record"
	"parley/stream"
)

// oldAtOnce is the maximum number of old buckets of usage that one transaction removes. It keeps other writes from waiting long.
const oldAtOnce = 4096

// Usage implements conversation.Store. It reads the owner's buckets of the hours [from, to), the lifetime of each session of the
// owner, and the end of each active API key of the owner.
func (s *Store) Usage(ctx context.Context, owner conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	var used conversation.UsageSpan
	if err := s.Admit(ctx); err != nil { // the report includes this request
		return used, err
	}
	if err := s.run(ctx, (*writing).countRequests); err != nil {
		return used, err
	}
	err := s.view(ctx, func(r *reading) (err error) {
		used.Now = momentHour(r.now)
		from := max(from, used.Now-usage.RetentionHours)
		if used.Hours, err = r.usage(owner, from, to); err != nil {
			return err
		}
		used.Keys = r.activeKeys(auth.Owner{Account: owner.Account, Mode: string(owner.Mode)}, math.MaxInt64)
		kept, err := r.stored(owner)
		if err != nil {
			return err
		}
		used.StoredBytes, used.Sockets = kept.bytes, s.sockets.count(auth.Owner{Account: owner.Account, Mode: string(owner.Mode)})
		return r.existing(owner, from, to, &used)
	})
	return used, err
}

// usage returns the owner's buckets of the hours [from, to).
func (r *reading) usage(owner conversation.Owner, from, to usage.Hour) ([]usage.Hourly, error) {
	var hours []usage.Hourly
	buckets := r.span(usageBucket, ownerKey(owner))
	for key, value, ok := buckets.from(string(hourKey(nil, from))); ok; key, value, ok = buckets.next() {
		if len(key) != hourLength {
			return nil, errRecord
		}
		hour := hourOf(key)
		if hour >= to {
			break
		}
		hours = append(hours, usage.Hourly{Hour: hour})
		if err := readUsage(value, &hours[len(hours)-1].Bucket); err != nil {
			return nil, err
		}
	}
	return hours, nil
}

// existing counts the sessions that have not expired. It adds their number to used, in total and by hour of creation.
func (r *reading) existing(owner conversation.Owner, from, to usage.Hour, used *conversation.UsageSpan) error {
	sessions := r.span(sessionsBucket, ownerKey(owner))
	for _, value, ok := sessions.from(""); ok; _, value, ok = sessions.next() {
		created, expires, err := readLifetime(value)
		if err != nil {
			return err
		}
		if expires <= r.now {
			continue
		}
		used.Active++
		hour := usage.HourOf(int64(created))
		if hour < from || hour >= to {
			continue
		}
		at, found := slices.BinarySearchFunc(used.Hours, hour, func(h usage.Hourly, hour usage.Hour) int { return int(h.Hour - hour) })
		if !found { // the hour has no bucket
			used.Hours = slices.Insert(used.Hours, at, usage.Hourly{Hour: hour})
		}
		used.Hours[at].Existing++
	}
	return nil
}

// countEvery is the longest time between the admission of a request and its count in the file. Any commit counts the pending
// requests earlier. A kill loses the counts of at most a second, and a read need not wait for a commit.
const countEvery = time.Second

// note records an admitted request. The store counts the request in the file later, so that no request waits for a write. No
// timer runs while no request is recorded. The caller must hold mu.
func (l *limits) note(at hourAt) {
	l.requests[at]++
	if l.tick == nil {
		l.tick = time.AfterFunc(countEvery, l.due)
	}
}

// take adds the recorded requests to the map into, forgets them, and stops the timer.
func (l *limits) take(into map[hourAt]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tick != nil {
		l.tick.Stop()
		l.tick = nil
	}
	for at, n := range l.requests {
		into[at] += n
	}
	clear(l.requests)
}

// notes reports whether requests are recorded.
func (l *limits) notes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests) > 0
}

// countRequests is an operation that makes the transaction commit if requests are recorded. putTally then counts them.
func (w *writing) countRequests() error {
	w.wrote = w.wrote || len(w.requests) > 0 || w.store.limits.notes()
	return nil
}

// countDue submits countRequests and does not wait for it.
func (s *Store) countDue() {
	s.mu.Lock()
	if !s.closed {
		s.waiting = append(s.waiting, newOperation((*writing).countRequests))
	}
	s.mu.Unlock()
	s.alert()
}

// tally holds the buckets of usage that a transaction changes. The transaction reads and writes each bucket once, even if many of
// its operations add to the bucket.
type tally struct {
	places  map[hourAt]int // indices into buckets
	buckets []usage.Bucket // a bucket that no index refers to is kept to reuse its memory
}

// hourAt identifies a bucket of usage.
type hourAt struct {
	owner conversation.Owner
	hour  usage.Hour
}

// count adds counted to the bucket of an hour.
func (w *writing) count(owner conversation.Owner, hour usage.Hour, counted usage.Bucket) error {
	w.wrote = true // putTally will write it
	t, at := &w.tally, hourAt{owner, hour}
	place, found := t.places[at]
	if !found {
		place = len(t.places)
		if place == len(t.buckets) {
			t.buckets = append(t.buckets, usage.Bucket{})
		}
		t.buckets[place].Reset()
		if err := readUsage(w.bucket(usageBucket).Get(usageKey(at)), &t.buckets[place]); err != nil {
			return err
		}
		t.places[at] = place
	}
	t.buckets[place].Add(&counted)
	return nil
}

// putTally adds the recorded requests to the tally, and then writes all buckets of the tally. It is the last step of a
// transaction.
func (w *writing) putTally() error {
	w.store.limits.take(w.requests)
	for at, n := range w.requests {
		if err := w.count(at.owner, at.hour, usage.Bucket{Requests: n}); err != nil {
			return err
		}
	}
	for at, place := range w.tally.places {
		start := len(w.arena)
		w.arena = appendUsage(w.arena, &w.tally.buckets[place])
		if err := w.putFrom(usageBucket, usageKey(at), start); err != nil {
			return err
		}
	}
	return nil
}

// countBeginning counts a turn that begins. last is the time of the session's previous activity.
func (w *writing) countBeginning(owner conversation.Owner, begun *conversation.TurnStart, last conversation.Time) error {
	if longer := int64(begun.Session.LastActivity - last); longer > 0 {
		if err := w.count(owner, momentHour(begun.Session.CreatedAt), usage.Bucket{SessionTime: longer}); err != nil {
			return err
		}
	}
	return w.count(owner, momentHour(begun.Message.CreatedAt), conversation.UsageOfTurnStart(begun.Message.Role))
}

func momentHour(t conversation.Time) usage.Hour { return usage.HourOf(int64(t)) }

// settleGone counts the usage of a turn after its session has expired or was removed. It counts each turn only once. settled is
// false if the turn was counted before. ending returns the reply with its usage.
func (w *writing) settleGone(key conversation.TurnKey, timing conversation.Timing, ending func(record.LiveTurn) *conversation.Message) (settled bool, err error) {
	at := ref{key.Owner, key.SessionID}
	bucket, place := liveBucket, at.key() // if the session has expired but is not removed yet
	turn, err := w.turn(bucket, place)
	if err == nil && (turn.ReplyID != key.ReplyID || turn.Fence != key.Fence) {
		bucket, place = unsettledBucket, unsettledKey(key)
		turn, err = w.turn(bucket, place)
	}
	if err != nil || turn == (record.LiveTurn{}) {
		return false, err
	}
	if bucket == liveBucket {
		w.ended = append(w.ended, turn.ReplyID)
	}
	if err := w.delete(bucket, place); err != nil {
		return false, err
	}
	return true, w.count(key.Owner, momentHour(w.now), conversation.UsageOfTurnEnd(ending(turn), timing))
}

// turn returns the entry of liveBucket or unsettledBucket with this key. If there is no entry, it returns the zero value.
func (r *reading) turn(bucket string, key []byte) (record.LiveTurn, error) {
	value := r.bucket(bucket).Get(key)
	if value == nil {
		return record.LiveTurn{}, nil
	}
	return readLiveTurn(value)
}

// unsettle moves the live turn of a removed session to unsettledBucket. The new entry has only the tokens of the prompt, which
// the owner's usage needs, and nothing that identifies the session. A turn that ended after its session had expired is already
// settled and has no entry.
func (w *writing) unsettle(at ref) error {
	turn, err := w.turn(liveBucket, at.key())
	if err != nil || turn == (record.LiveTurn{}) {
		return err
	}
	key := conversation.TurnKey{Owner: at.owner, SessionID: at.session, ReplyID: turn.ReplyID, Fence: turn.Fence}
	if err := w.putLiveTurn(unsettledBucket, unsettledKey(key), record.LiveTurn{Prompt: turn.Prompt}); err != nil {
		return err
	}
	return w.delete(liveBucket, at.key())
}

// unsettledKey identifies a turn by a hash of its ids. EndTurn can compute the key, but the key does not reveal the ids.
func unsettledKey(key conversation.TurnKey) []byte {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", key.SessionID, key.ReplyID, key.Fence))
	return append(ownerKey(key.Owner), hash[:]...)
}

// unsettled returns the keys of all turns that must still be settled.
func (r *reading) unsettled() (keys [][]byte, err error) {
	return keys, r.bucket(unsettledBucket).ForEach(func(key, _ []byte) error {
		keys = append(keys, bytes.Clone(key))
		return nil
	})
}

// settleLeft settles turns that an earlier process left in unsettledBucket. keys contains the keys of these turns. It skips turns
// that are settled already, and returns the number of turns that it settled.
func (w *writing) settleLeft(keys [][]byte) (settled int, err error) {
	for _, key := range keys {
		turn, err := w.turn(unsettledBucket, key)
		if err != nil {
			return 0, err
		}
		owner, _, ok := cutOwner(key)
		if !ok {
			return 0, errRecord
		}
		if turn == (record.LiveTurn{}) {
			continue
		}
		if err := w.delete(unsettledBucket, key); err != nil {
			return 0, err
		}
		reply := orphaned(conversation.Message{Status: stream.Interrupted}, turn)
		if err := w.count(owner, momentHour(w.now), conversation.UsageOfTurnEnd(reply, conversation.Timing{})); err != nil {
			return 0, err
		}
		settled++
	}
	return settled, nil
}

// removeOldUsage removes up to oldAtOnce buckets that are older than usage.RetentionHours. more reports whether old buckets are
// left. After it has removed all old buckets, removeOldUsage does nothing for the rest of the hour.
func (w *writing) removeOldUsage() (more bool, err error) {
	now := momentHour(w.now)
	if w.store.usageSwept == now {
		return false, nil
	}
	var old [][]byte
	cursor := w.bucket(usageBucket).Cursor()
	for key, _ := cursor.First(); key != nil; {
		owner, hour, ok := cutOwner(key)
		if !ok || len(hour) != hourLength {
			return false, errRecord
		}
		oldest := hourKey(ownerKey(owner), now-usage.RetentionHours)
		for ; key != nil && bytes.Compare(key, oldest) < 0; key, _ = cursor.Next() {
			if len(old) == oldAtOnce {
				more = true
				break
			}
			old = append(old, key)
		}
		if more {
			break
		}
		key, _ = cursor.Seek(append(ownerKey(owner), 0xFF)) // the first bucket of the next owner: no hour begins with 0xFF
	}
	for _, key := range old {
		if err := w.delete(usageBucket, key); err != nil {
			return false, err
		}
	}
	if !more {
		w.usageSwept = now
	}
	return more, nil
}

const hourLength = 8

func hourKey(key []byte, hour usage.Hour) []byte {
	return binary.BigEndian.AppendUint64(key, uint64(max(hour, 0)))
}

// hourOf decodes an hour that hourKey has encoded.
func hourOf(key []byte) usage.Hour { return usage.Hour(binary.BigEndian.Uint64(key)) }

func usageKey(at hourAt) []byte { return hourKey(ownerKey(at.owner), at.hour) }
