package embedded

import (
	"context"

	"parley/conversation"
)

// expiredAtOnce is the maximum number of sessions, and also of requests, that RemoveExpired removes in one transaction. It keeps
// other writes from waiting long.
const expiredAtOnce = 64

// CreateSession implements conversation.Store. The new id is greater than the ids of all other sessions of the owner.
func (s *Store) CreateSession(ctx context.Context, owner conversation.Owner, session conversation.NewSession) (conversation.SessionCreated, error) {
	return update(ctx, s, func(w *writing) (conversation.SessionCreated, error) {
		earlier, found, err := w.recall(owner, session.Idempotency)
		if err != nil {
			return conversation.SessionCreated{}, err
		}
		if found {
			made, err := w.session(ref{owner, earlier.Session})
			return conversation.SessionCreated{Session: made, Replayed: true}, err
		}
		if err := w.mayGrow(); err != nil {
			return conversation.SessionCreated{}, err
		}
		created := session.Session()
		if err := w.mayCreate(ctx, owner, created.StoredBytes()); err != nil {
			return conversation.SessionCreated{}, err
		}
		made, err := w.createSession(owner, created, session.Idempotency)
		return conversation.SessionCreated{Session: made}, err
	})
}

func (w *writing) createSession(owner conversation.Owner, created conversation.Session, request *conversation.Idempotency) (conversation.Session, error) {
	newest, _, _ := w.span(sessionsBucket, ownerKey(owner)).before("")
	created.ID = conversation.NewID(conversation.SessionPrefix, w.now, string(newest))
	created.CreatedAt, created.ExpiresAt, created.LastActivity = w.now, w.now.Add(conversation.Lifetime), w.now
	at := ref{owner, created.ID}
	if err := w.putSession(at, &created); err != nil {
		return conversation.Session{}, err
	}
	if err := w.put(usersBucket, append(userKey(owner, created.UserID), created.ID...), nil); err != nil {
		return conversation.Session{}, err
	}
	if err := w.remember(at, request, conversation.Replayed{}); err != nil {
		return conversation.Session{}, err
	}
	if err := w.put(expiryBucket, expiryKey(created.ExpiresAt, at), nil); err != nil {
		return conversation.Session{}, err
	}
	if err := w.dropStored(owner); err != nil {
		return conversation.Session{}, err
	}
	if err := w.addStored(owner, created.ExpiresAt, storedCount{sessions: 1, bytes: int64(created.StoredBytes())}); err != nil {
		return conversation.Session{}, err
	}
	return created, w.count(owner, momentHour(w.now), conversation.UsageOfSession())
}

// Session implements conversation.Store.
func (s *Store) Session(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	var session conversation.Session
	err := s.view(ctx, func(r *reading) (err error) {
		session, err = r.session(ref{owner, sessionID})
		return err
	})
	return session, err
}

// UpdateSession implements conversation.Store. It calls change in the committer's transaction.
func (s *Store) UpdateSession(ctx context.Context, owner conversation.Owner, sessionID string, change func(*conversation.Session) error) (conversation.Session, error) {
	return update(ctx, s, func(w *writing) (conversation.Session, error) {
		at := ref{owner, sessionID}
		before, err := w.session(at)
		if err != nil {
			return conversation.Session{}, err
		}
		after := before
		if err := change(&after); err != nil {
			return conversation.Session{}, err
		}
		if err := before.CheckPolicyChange(after.Context.RetentionPolicy); err != nil {
			return conversation.Session{}, err
		}
		return after, w.replaceSettings(ctx, at, &before, &after)
	})
}

// replaceSettings stores a session with other settings. It refuses them if they grow and do not fit the file or the quota. If
// the policy becomes fifo, only system messages stay in the index.
func (w *writing) replaceSettings(ctx context.Context, at ref, before, after *conversation.Session) error {
	grown := after.StoredBytes() - before.StoredBytes()
	if grown > 0 {
		if err := w.mayGrow(); err != nil {
			return err
		}
		if err := w.mayStore(ctx, at.owner, grown); err != nil {
			return err
		}
	}
	if err := w.addStored(at.owner, after.ExpiresAt, storedCount{bytes: int64(grown)}); err != nil {
		return err
	}
	if after.Context.RetentionPolicy == conversation.FIFO && before.Context.RetentionPolicy != conversation.FIFO {
		if err := w.indexOnlySystem(at); err != nil {
			return err
		}
	}
	w.remove = true // the old texts must not stay in free pages
	return w.putSession(at, after)
}

// Sessions implements conversation.Store. It does not read expired sessions that RemoveExpired has not removed yet, except if
// their ids ran ahead of the clock (conversation.OldestSession).
func (s *Store) Sessions(ctx context.Context, owner conversation.Owner, query conversation.SessionQuery) (conversation.SessionPage, error) {
	var page conversation.SessionPage
	err := s.view(ctx, func(r *reading) error {
		ids := r.span(sessionsBucket, ownerKey(owner))
		if query.UserID != "" {
			ids = r.span(usersBucket, userKey(owner, query.UserID))
		}
		oldest := conversation.OldestSession(r.now)
		for id, value, ok := ids.before(query.Before); ok && string(id) >= oldest; id, value, ok = ids.prev() {
			if query.UserID != "" {
				value = r.bucket(sessionsBucket).Get(ref{owner, string(id)}.key())
			}
			session, err := readSession(value, string(id))
			if err != nil {
				return err
			}
			if session.ExpiresAt <= r.now {
				continue
			}
			if page.More = len(page.Sessions) == query.Limit; page.More {
				return nil
			}
			page.Sessions = append(page.Sessions, session.Short())
		}
		return nil
	})
	return page, err
}

// DeleteSession implements conversation.Store. A sweep overwrites the removed bytes soon after (see Scrubbed).
func (s *Store) DeleteSession(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	return update(ctx, s, func(w *writing) (conversation.Session, error) {
		at := ref{owner, sessionID}
		session, err := w.session(at)
		if err != nil {
			return conversation.Session{}, err
		}
		return session.Short(), w.removeSession(at, &session)
	})
}

// removeSession removes a session with its messages, index, summary and idempotency keys. A live turn moves to unsettledBucket.
func (w *writing) removeSession(at ref, session *conversation.Session) error {
	if _, err := w.removeMessages(at, session); err != nil {
		return err
	}
	if err := w.addStored(at.owner, session.ExpiresAt, storedCount{sessions: -1, bytes: -int64(session.StoredBytes())}); err != nil {
		return err
	}
	if err := w.forgetSession(at); err != nil {
		return err
	}
	if session.LiveReply != "" {
		w.ended = append(w.ended, session.LiveReply)
		if err := w.unsettle(at); err != nil {
			return err
		}
	}
	if err := w.delete(usersBucket, append(userKey(at.owner, session.UserID), session.ID...)); err != nil {
		return err
	}
	if err := w.delete(expiryBucket, expiryKey(session.ExpiresAt, at)); err != nil {
		return err
	}
	w.dissolve(at)
	w.remove = true
	return w.delete(sessionsBucket, at.key())
}

// removeMessages removes the messages of a session, their index and the summary. It returns the number of removed messages.
func (w *writing) removeMessages(at ref, session *conversation.Session) (int, error) {
	if _, err := w.removeEach(indexBucket, at, nil); err != nil {
		return 0, err
	}
	bytes, err := w.bytesOf(at, session.MessageCount)
	if err != nil {
		return 0, err
	}
	if err := w.addStored(at.owner, session.ExpiresAt, storedCount{bytes: -bytes}); err != nil {
		return 0, err
	}
	if w.bucket(summariesBucket).Get(at.key()) != nil {
		if err := w.delete(summariesBucket, at.key()); err != nil {
			return 0, err
		}
	}
	n, err := w.removeEach(messagesBucket, at, nil)
	w.remove = w.remove || n > 0
	return n, err
}

// removeEach removes the entries of a session for which stays returns false from messagesBucket or indexBucket. If stays is nil, it
// removes all of them. It returns the number of the removed entries.
func (w *writing) removeEach(bucket string, at ref, stays func(id, value []byte) (bool, error)) (int, error) {
	var ids [][]byte // collected first, because a deletion invalidates the cursor
	messages := w.span(bucket, at.key())
	for id, value, ok := messages.from(""); ok; id, value, ok = messages.next() {
		kept, err := false, error(nil)
		if stays != nil {
			kept, err = stays(id, value)
		}
		switch {
		case err != nil:
			return 0, err
		case !kept:
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if err := w.delete(bucket, append(at.key(), id...)); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

// RemoveExpired implements conversation.Store. A transaction removes up to expiredAtOnce sessions. If a transaction fails,
// RemoveExpired returns the sessions that earlier transactions have removed, with the error.
func (s *Store) RemoveExpired(ctx context.Context) (removed []conversation.OwnedSession, next conversation.Time, err error) {
	type page struct {
		removed []conversation.OwnedSession
		next    conversation.Time
		more    bool
	}
	for {
		p, err := update(ctx, s, func(w *writing) (p page, err error) {
			if p.removed, p.next, err = w.removeExpired(); err != nil {
				return p, err
			}
			forget, err := w.forgetExpired()
			if p.next == 0 || forget != 0 && forget < p.next {
				p.next = forget
			}
			if err != nil {
				return p, err
			}
			p.more, err = w.removeOldUsage()
			p.more = p.more || p.next != 0 && p.next <= w.now
			return p, err
		})
		if err != nil {
			return removed, 0, err
		}
		removed = append(removed, p.removed...)
		if !p.more {
			return removed, p.next, nil
		}
	}
}

// removeExpired removes up to expiredAtOnce expired sessions. It returns these sessions, and the expiry time of the first session
// that is left, or 0 if none is left.
func (w *writing) removeExpired() (removed []conversation.OwnedSession, next conversation.Time, err error) {
	var due []ref
	index := w.span(expiryBucket, nil)
	for key, _, ok := index.from(""); ok; key, _, ok = index.next() {
		expires, at, ok := cutExpiry(key)
		if !ok {
			return nil, 0, errRecord
		}
		if expires > w.now || len(due) == expiredAtOnce {
			next = expires
			break
		}
		due = append(due, at)
	}
	for _, at := range due {
		session, err := readSession(w.bucket(sessionsBucket).Get(at.key()), at.session)
		if err != nil {
			return nil, 0, err
		}
		if err := w.removeSession(at, &session); err != nil {
			return nil, 0, err
		}
		removed = append(removed, conversation.OwnedSession{Owner: at.owner, Session: session})
	}
	return removed, next, nil
}
