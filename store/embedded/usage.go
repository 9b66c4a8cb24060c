package embedded

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/stream"
)

// oldAtOnce is how many old buckets of usage one transaction removes.
const oldAtOnce = 4096

// Usage implements conversation.Store. It reads the buckets of the hours, and of each of the owner's sessions two numbers.
func (s *Store) Usage(ctx context.Context, owner conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	var used conversation.UsageSpan
	if err := s.Admit(ctx); err != nil { // it counts itself
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
		return r.existing(owner, from, to, &used)
	})
	return used, err
}

// usage returns the buckets of some hours.
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
		if err := readBucket(value, &hours[len(hours)-1].Bucket); err != nil {
			return nil, err
		}
	}
	return hours, nil
}

// existing counts the sessions that exist, in all and by the hour of their creation.
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
		if !found { // older than the buckets are
			used.Hours = slices.Insert(used.Hours, at, usage.Hourly{Hour: hour})
		}
		used.Hours[at].Existing++
	}
	return nil
}

// countEvery is how soon after a request was admitted it is durable that it was.
const countEvery = time.Second

// note notes that a request was admitted, so that no request waits for it to be written; called with mu held. While
// nobody calls, nothing runs.
func (l *limits) note(at hourAt) {
	l.requests[at]++
	if l.tick == nil {
		l.tick = time.AfterFunc(countEvery, l.due)
	}
}

// take moves what was noted.
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

// notes reports whether something was noted.
func (l *limits) notes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.requests) > 0
}

// countRequests is an operation that does nothing but to have the requests counted that were noted: putTally does.
func (w *writing) countRequests() error {
	w.wrote = w.wrote || len(w.requests) > 0 || w.store.limits.notes()
	return nil
}

// countDue has the committer count requests. It does not wait for that.
func (s *Store) countDue() {
	s.mu.Lock()
	if !s.closed {
		s.waiting = append(s.waiting, newOperation((*writing).countRequests))
	}
	s.mu.Unlock()
	s.alert()
}

// tally is the buckets of usage that a transaction counts in, as they will be: each is read once and written once, however
// many operations of the transaction count in it.
type tally struct {
	places  map[hourAt]int // in buckets
	buckets []usage.Bucket // those that places does not name are kept for their room
}

// hourAt says which bucket is meant.
type hourAt struct {
	owner conversation.Owner
	hour  usage.Hour
}

// count adds to the bucket of an hour.
func (w *writing) count(owner conversation.Owner, hour usage.Hour, counted usage.Bucket) error {
	w.wrote = true // what is in the tally is as good as written
	t, at := &w.tally, hourAt{owner, hour}
	place, found := t.places[at]
	if !found {
		place = len(t.places)
		if place == len(t.buckets) {
			t.buckets = append(t.buckets, usage.Bucket{})
		}
		t.buckets[place].Reset()
		if err := readBucket(w.bucket(usageBucket).Get(usageKey(at)), &t.buckets[place]); err != nil {
			return err
		}
		t.places[at] = place
	}
	t.buckets[place].Add(&counted)
	return nil
}

// putTally writes what was counted, and the requests that were admitted meanwhile; it is the last that a transaction does.
func (w *writing) putTally() error {
	w.store.limits.take(w.requests)
	for at, n := range w.requests {
		if err := w.count(at.owner, at.hour, usage.Bucket{Requests: n}); err != nil {
			return err
		}
	}
	for at, place := range w.tally.places {
		start := len(w.arena)
		w.arena.bucket(&w.tally.buckets[place])
		if err := w.putRecord(usageBucket, usageKey(at), start); err != nil {
			return err
		}
	}
	return nil
}

// countBeginning counts a turn that begins, in a session that was last active at that time.
func (w *writing) countBeginning(owner conversation.Owner, begun *conversation.TurnStart, last conversation.Time) error {
	if longer := int64(begun.Session.LastActivity - last); longer > 0 {
		if err := w.count(owner, momentHour(begun.Session.CreatedAt), usage.Bucket{SessionTime: longer}); err != nil {
			return err
		}
	}
	return w.count(owner, momentHour(begun.Message.CreatedAt), conversation.UsageOfTurnStart(begun.Message.Role))
}

func momentHour(t conversation.Time) usage.Hour { return usage.HourOf(int64(t)) }

// settleGone counts the usage of a turn whose session is gone, if that was not done before: settle returns the reply as it
// ended.
func (w *writing) settleGone(key conversation.TurnKey, timing conversation.Timing, settle func(liveRecord) *conversation.Message) (settled bool, err error) {
	at := ref{key.Owner, key.SessionID}
	bucket, place := liveBucket, at.key() // the session has expired, and is not removed yet
	turn, err := w.turn(bucket, place)
	if err == nil && (turn.MessageID != key.ReplyID || turn.Fence != key.Fence) {
		bucket, place = unsettledBucket, unsettledKey(key)
		turn, err = w.turn(bucket, place)
	}
	if err != nil || turn == (liveRecord{}) {
		return false, err
	}
	if bucket == liveBucket {
		w.ended = append(w.ended, turn.MessageID)
	}
	if err := w.delete(bucket, place); err != nil {
		return false, err
	}
	return true, w.count(key.Owner, momentHour(w.now), conversation.UsageOfTurnEnd(settle(turn), timing))
}

// turn returns a record of liveBucket or unsettledBucket; the zero value if there is none.
func (r *reading) turn(bucket string, key []byte) (liveRecord, error) {
	value := r.bucket(bucket).Get(key)
	if value == nil {
		return liveRecord{}, nil
	}
	return readLive(value)
}

// unsettle keeps of a session's live turn what is needed to settle the owner's usage of it, and nothing by which the
// session could be known again. Where the turn ended after the session had expired, that has been done.
func (w *writing) unsettle(at ref) error {
	turn, err := w.turn(liveBucket, at.key())
	if err != nil || turn == (liveRecord{}) {
		return err
	}
	start := len(w.arena)
	w.arena.live(liveRecord{Prompt: turn.Prompt})
	key := conversation.TurnKey{Owner: at.owner, SessionID: at.session, ReplyID: turn.MessageID, Fence: turn.Fence}
	if err := w.putRecord(unsettledBucket, unsettledKey(key), start); err != nil {
		return err
	}
	return w.delete(liveBucket, at.key())
}

// unsettledKey names a turn without its ids: whoever ends it can make the key, and the key does not give them away.
func unsettledKey(key conversation.TurnKey) []byte {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", key.SessionID, key.ReplyID, key.Fence))
	return append(ownerKey(key.Owner), hash[:]...)
}

// unsettled returns the keys of all turns that are to be settled.
func (r *reading) unsettled() (keys [][]byte, err error) {
	return keys, r.bucket(unsettledBucket).ForEach(func(key, _ []byte) error {
		keys = append(keys, bytes.Clone(key))
		return nil
	})
}

// settleLeft settles those turns, of an earlier process and of sessions that are gone, that are not settled still. It returns
// how many that were.
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
		if turn == (liveRecord{}) {
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

// removeOldUsage removes buckets that have been kept for long enough, once an hour. It reports whether some are left.
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
		key, _ = cursor.Seek(append(ownerKey(owner), 0xFF)) // the next owner's: no hour begins so
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

// hourOf is the inverse of hourKey.
func hourOf(key []byte) usage.Hour { return usage.Hour(binary.BigEndian.Uint64(key)) }

func usageKey(at hourAt) []byte { return hourKey(ownerKey(at.owner), at.hour) }

// bucket writes a bucket of usage: for each count that is not zero how much higher its field is than the one before, and the
// count. An hour of a busy owner takes some 150 bytes.
func (r *record) bucket(b *usage.Bucket) {
	last := usage.Field(0)
	for field, n := range b.All() {
		*r = binary.AppendVarint(binary.AppendUvarint(*r, uint64(field-last)), n)
		last = field
	}
}

// readBucket adds what bucket wrote to an empty bucket.
func readBucket(value []byte, b *usage.Bucket) error {
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
