package embedded

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/record"
)

// This file counts the sessions of an owner and their bytes, for the quotas activeSessions and storedBytes. storedBucket counts
// them by the hour in which the sessions expire. No quota uses a count after its hour. So an error in a count lasts at most a
// day. An error occurs, for example, while an earlier version of Parley uses the file.

// storedCount is a number of sessions and their bytes.
type storedCount struct{ sessions, bytes int64 }

func (s storedCount) plus(other storedCount) storedCount {
	return storedCount{s.sessions + other.sessions, s.bytes + other.bytes}
}

func (s storedCount) append(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.sessions)), uint64(s.bytes))
}

// readStored decodes a value that append has encoded. For an empty value, it returns the zero value.
func readStored(value []byte) (storedCount, error) {
	if len(value) == 0 {
		return storedCount{}, nil
	}
	sessions, n := binary.Uvarint(value)
	if n <= 0 {
		return storedCount{}, errRecord
	}
	all, n := binary.Uvarint(value[n:])
	if n <= 0 {
		return storedCount{}, errRecord
	}
	return storedCount{int64(sessions), int64(all)}, nil
}

// stored returns the number of an owner's sessions and their bytes. A session that expired in this hour counts until it is
// removed.
func (r *reading) stored(owner conversation.Owner) (sum storedCount, err error) {
	hours := r.span(storedBucket, ownerKey(owner))
	for _, value, ok := hours.from(string(hourKey(nil, momentHour(r.now)))); ok; _, value, ok = hours.next() {
		s, err := readStored(value)
		if err != nil {
			return storedCount{}, err
		}
		sum = sum.plus(s)
	}
	return sum, nil
}

// addStored adds to the count of the sessions that expire at the time expires. The difference may be negative. addStored keeps
// the count from becoming negative, because an earlier version may have stored messages without counting them.
func (w *writing) addStored(owner conversation.Owner, expires conversation.Time, difference storedCount) error {
	if difference == (storedCount{}) {
		return nil
	}
	key := usageKey(hourAt{owner, momentHour(expires)})
	s, err := readStored(w.bucket(storedBucket).Get(key))
	if err != nil {
		return err
	}
	s = s.plus(difference)
	s.sessions, s.bytes = max(s.sessions, 0), max(s.bytes, 0)
	if s == (storedCount{}) {
		return w.delete(storedBucket, key)
	}
	start := len(w.arena)
	w.arena = s.append(w.arena)
	return w.putFrom(storedBucket, key, start)
}

// mayCreate returns an *auth.QuotaError if the owner has no room for a new session with this number of bytes. ctx contains the
// admission of the request.
func (r *reading) mayCreate(ctx context.Context, owner conversation.Owner, bytes int) error {
	all, err := r.stored(owner)
	if err != nil {
		return err
	}
	if most := auth.LimitsOf(ctx).ActiveSessions; most > 0 && all.sessions >= most {
		if all.sessions, err = r.withoutExpired(owner, all.sessions, most); err != nil {
			return err
		}
		if all.sessions >= most {
			return auth.QuotaRefused(ctx, limit.QuotaActiveSessions, all.sessions)
		}
	}
	return fits(ctx, all, bytes)
}

// mayStore returns an *auth.QuotaError if the owner has no room for this number of bytes. ctx contains the admission of the
// request.
func (r *reading) mayStore(ctx context.Context, owner conversation.Owner, bytes int) error {
	if auth.LimitsOf(ctx).StoredBytes == 0 {
		return nil
	}
	all, err := r.stored(owner)
	if err != nil {
		return err
	}
	return fits(ctx, all, bytes)
}

func fits(ctx context.Context, all storedCount, bytes int) error {
	if most := auth.LimitsOf(ctx).StoredBytes; most > 0 && all.bytes+int64(bytes) > most {
		return auth.QuotaRefused(ctx, limit.QuotaStoredBytes, all.bytes)
	}
	return nil
}

// withoutExpired subtracts from counted the sessions that expired in this hour and are not removed yet, and returns the result.
// It stops when the result is below enough. Sessions expire in the order of their ids, so withoutExpired reads only expired
// sessions and one more. If the clock was set back, the order may differ. Then some expired sessions count until RemoveExpired
// removes them.
func (r *reading) withoutExpired(owner conversation.Owner, counted, enough int64) (int64, error) {
	sessions := r.span(sessionsBucket, ownerKey(owner))
	for _, value, ok := sessions.from(""); ok && counted >= enough; _, value, ok = sessions.next() {
		_, expires, err := readLifetime(value)
		if err != nil || expires > r.now {
			return counted, err
		}
		if momentHour(expires) == momentHour(r.now) {
			counted--
		}
	}
	return counted, nil
}

// bytesOf returns the sum of conversation.Message.StoredBytes over the messages of a session. count is their number.
func (r *reading) bytesOf(at ref, count int) (sum int64, err error) {
	messages, q := r.span(messagesBucket, at.key()), newSequence(at, true, count)
	for id, value, ok := messages.from(""); ok; id, value, ok = messages.next() {
		q.follow(value, id)
		n, err := messageBytes(value)
		if err != nil {
			return 0, err
		}
		sum += int64(n)
	}
	q.end(count)
	return sum, nil
}

// messageBytes returns conversation.Message.StoredBytes of an encoded message.
func messageBytes(value []byte) (int, error) {
	value = cutNumber(value)
	if isOld(value) {
		m, err := oldMessage(value, "", "")
		return m.StoredBytes(), err
	}
	_, size := binary.Varint(value[1:])
	if size <= 0 {
		return 0, errRecord
	}
	return record.MessageBytes(value[1+size:])
}

// fillStored counts all sessions, because earlier versions had no storedBucket. It writes the counts in order, because bbolt
// takes quadratic time for entries in another order.
func fillStored(r *reading) error {
	counts := make(map[string]storedCount)
	err := r.bucket(sessionsBucket).ForEach(func(key, value []byte) error {
		owner, id, ok := cutOwner(key)
		if !ok {
			return errRecord
		}
		session, err := readSession(value, string(id))
		if err != nil {
			return err
		}
		bytes, err := r.bytesOf(ref{owner, session.ID}, session.MessageCount)
		if err != nil {
			return err
		}
		counted := storedCount{sessions: 1, bytes: bytes + int64(session.StoredBytes())}
		hour := string(usageKey(hourAt{owner, momentHour(session.ExpiresAt)}))
		counts[hour] = counts[hour].plus(counted)
		return nil
	})
	if err != nil {
		return err
	}
	for _, hour := range slices.Sorted(maps.Keys(counts)) {
		if err := r.bucket(storedBucket).put([]byte(hour), counts[hour].append(nil)); err != nil {
			return err
		}
	}
	return nil
}

// dropStored removes the owner's counts of earlier hours, which no quota uses. Most of them are gone already, because
// RemoveExpired subtracts each session that it removes.
func (w *writing) dropStored(owner conversation.Owner) error {
	var past [][]byte
	hours := w.span(storedBucket, ownerKey(owner))
	for hour, _, ok := hours.from(""); ok && hourOf(hour) < momentHour(w.now); hour, _, ok = hours.next() {
		past = append(past, hour)
	}
	for _, hour := range past {
		if err := w.delete(storedBucket, append(ownerKey(owner), hour...)); err != nil {
			return err
		}
	}
	return nil
}
