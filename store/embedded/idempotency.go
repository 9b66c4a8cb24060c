package embedded

import (
	"encoding/binary"

	"parley/conversation"
	"parley/store/record"
)

func idempotencyKey(o conversation.Owner, key string) []byte { return append(ownerKey(o), key...) }

func idempotentKey(at ref, key string) []byte { return append(at.key(), key...) }

func forgetKey(expires conversation.Time, o conversation.Owner, key string) []byte {
	index := binary.BigEndian.AppendUint64(make([]byte, 0, 96), uint64(expires))
	return append(appendOwner(index, o), key...)
}

// recall returns the stored result of an earlier request with the same idempotency key and digest; found is false if no such
// request is stored. It returns ErrIdempotencyConflict if a different request has used the key.
func (r *reading) recall(o conversation.Owner, i *conversation.Idempotency) (earlier record.Request, found bool, err error) {
	if i == nil {
		return earlier, false, nil
	}
	value := r.bucket(idempotencyBucket).Get(idempotencyKey(o, i.Key))
	if value == nil {
		return earlier, false, nil
	}
	if earlier, err = readRequest(value); err != nil || earlier.Expires <= r.now {
		return earlier, false, err
	}
	if earlier.Digest != i.Digest {
		return earlier, false, conversation.ErrIdempotencyConflict
	}
	return earlier, true, nil
}

// remember stores the result of a request in a session, if the request has an idempotency key.
func (w *writing) remember(at ref, i *conversation.Idempotency, turn conversation.Replayed) error {
	if i == nil {
		return nil
	}
	if err := w.forget(at.owner, i.Key); err != nil { // an expired entry may still exist
		return err
	}
	request := record.Request{
		Digest: i.Digest, Session: at.session, Turn: turn, Expires: w.now.Add(conversation.IdempotencyLifetime),
	}
	if err := w.putRequest(idempotencyKey(at.owner, i.Key), &request); err != nil {
		return err
	}
	if err := w.put(idempotentBucket, idempotentKey(at, i.Key), nil); err != nil {
		return err
	}
	return w.put(forgetBucket, forgetKey(request.Expires, at.owner, i.Key), nil)
}

// forget removes the entries of an idempotency key. If the key has no entries, forget does nothing.
func (w *writing) forget(o conversation.Owner, key string) error {
	value := w.bucket(idempotencyBucket).Get(idempotencyKey(o, key))
	if value == nil {
		return nil
	}
	earlier, err := readRequest(value)
	if err != nil {
		return err
	}
	w.remove = true
	if err := w.delete(forgetBucket, forgetKey(earlier.Expires, o, key)); err != nil {
		return err
	}
	if err := w.delete(idempotentBucket, idempotentKey(ref{o, earlier.Session}, key)); err != nil {
		return err
	}
	return w.delete(idempotencyBucket, idempotencyKey(o, key))
}

// forgetSession removes the entries of all idempotency keys of a session.
func (w *writing) forgetSession(at ref) error {
	var keys []string
	index := w.span(idempotentBucket, at.key())
	for key, _, ok := index.from(""); ok; key, _, ok = index.next() {
		keys = append(keys, string(key))
	}
	for _, key := range keys {
		if err := w.forget(at.owner, key); err != nil {
			return err
		}
	}
	return nil
}

// forgetExpired removes up to expiredAtOnce expired requests. It returns the expiry time of the first request that is left, or 0
// if none is left.
func (w *writing) forgetExpired() (next conversation.Time, err error) {
	type name struct {
		owner conversation.Owner
		key   string
	}
	var due []name
	index := w.span(forgetBucket, nil)
	for key, _, ok := index.from(""); ok; key, _, ok = index.next() {
		expires, at, ok := cutExpiry(key)
		if !ok {
			return 0, errRecord
		}
		if expires > w.now || len(due) == expiredAtOnce {
			next = expires
			break
		}
		due = append(due, name{at.owner, at.session})
	}
	for _, d := range due {
		if err := w.forget(d.owner, d.key); err != nil {
			return 0, err
		}
	}
	return next, nil
}
