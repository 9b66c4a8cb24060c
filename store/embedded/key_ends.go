package embedded

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"parley/auth"
	"parley/conversation"
)

// This file counts the active keys of an owner, and removes the records of ended keys. Both use keyEndsBucket.

// keysPurgedAtOnce is the maximum number of records that purgeKeys removes. A new key adds at most one record, so ended keys do
// not pile up.
const keysPurgedAtOnce = 10

// neverEnds is the end of an active key without expiry.
const neverEnds conversation.Time = math.MaxInt64

// timeLength is the length of a time in the key of a bucket.
const timeLength = 8

func appendTime(key []byte, at conversation.Time) []byte {
	return binary.BigEndian.AppendUint64(key, uint64(at))
}

func keyEndKey(owner auth.Owner, end conversation.Time, keyID string) []byte {
	return append(appendTime(ownerKey(ownerOf(owner)), end), keyID...)
}

// endOf returns the end of a key that was not revoked.
func endOf(key *auth.Key) conversation.Time {
	if key.ExpiresAt.IsZero() {
		return neverEnds
	}
	return conversation.TimeOf(key.ExpiresAt)
}

// endKey moves the entry of a key that is being revoked to the present time, unless the key has expired before.
func (w *writing) endKey(key *auth.Key) error {
	end := endOf(key)
	if end <= w.now {
		return nil
	}
	if err := w.delete(keyEndsBucket, keyEndKey(key.Owner, end, key.ID)); err != nil {
		return err
	}
	return w.put(keyEndsBucket, keyEndKey(key.Owner, w.now, key.ID), nil)
}

// activeKeys returns the number of active keys of an owner. It counts up to most.
func (r *reading) activeKeys(owner auth.Owner, most int64) (n int64) {
	ends := r.span(keyEndsBucket, ownerKey(ownerOf(owner)))
	for _, _, ok := ends.from(string(appendTime(nil, r.now+1))); ok && n < most; _, _, ok = ends.next() {
		n++
	}
	return n
}

// purgeable returns the entries of keys that ended auth.EndedKeyLifetime ago or earlier: up to most entries, oldest first.
func (r *reading) purgeable(owner auth.Owner, most int) (due [][]byte) {
	return r.endedKeys(owner, r.now.Add(-auth.EndedKeyLifetime), most)
}

// endedKeys returns the entries of up to most keys that ended at or before the time at, oldest first. An entry consists of an end
// and a key id.
func (r *reading) endedKeys(owner auth.Owner, at conversation.Time, most int) (entries [][]byte) {
	ends := r.span(keyEndsBucket, ownerKey(ownerOf(owner)))
	for entry, _, ok := ends.from(""); ok && len(entries) < most; entry, _, ok = ends.next() {
		if len(entry) < timeLength || conversation.Time(binary.BigEndian.Uint64(entry)) > at {
			break
		}
		entries = append(entries, entry)
	}
	return entries
}

// purgeKeys removes the records of up to keysPurgedAtOnce purgeable keys. If the owner has more than auth.MaxEndedKeys ended
// keys, it removes the oldest of them instead.
func (w *writing) purgeKeys(owner auth.Owner) error {
	due := w.purgeable(owner, keysPurgedAtOnce)
	if all := w.endedKeys(owner, w.now, auth.MaxEndedKeys+keysPurgedAtOnce); len(all) > auth.MaxEndedKeys+len(due) {
		due = all[:len(all)-auth.MaxEndedKeys]
	}
	for _, entry := range due {
		if err := w.removeKey(owner, string(entry)); err != nil {
			return err
		}
	}
	return nil
}

// removeKey removes an ended key with its entries in all buckets. entry is the key's entry in keyEndsBucket: an end and a key id.
func (w *writing) removeKey(owner auth.Owner, entry string) error {
	key, err := w.key(keyKey(owner, entry[timeLength:]))
	if err != nil {
		return err
	}
	w.remove = true
	for _, secret := range key.Secrets {
		if err := w.delete(secretsBucket, secret.Hash[:]); err != nil {
			return err
		}
	}
	if err := w.delete(keyOrderBucket, keyOrderKey(&key)); err != nil {
		return err
	}
	if err := w.delete(keysBucket, keyKey(owner, key.ID)); err != nil {
		return err
	}
	return w.delete(keyEndsBucket, append(ownerKey(ownerOf(owner)), entry...))
}

// addKeyEnds fills keyEndsBucket with the entries of all keys, because earlier versions had no such bucket. It takes the present
// time as the end of a revoked key. It writes the entries in order, because bbolt takes quadratic time for entries in another
// order.
func addKeyEnds(r *reading) error {
	var entries [][]byte
	err := r.bucket(keysBucket).ForEach(func(at, _ []byte) error {
		key, err := r.key(at)
		if err != nil {
			return err
		}
		end := endOf(&key)
		if key.Revoked {
			end = min(end, r.now)
		}
		entries = append(entries, keyEndKey(key.Owner, end, key.ID))
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(entries, bytes.Compare)
	for _, entry := range entries {
		if err := r.bucket(keyEndsBucket).put(entry, nil); err != nil {
			return err
		}
	}
	return nil
}
