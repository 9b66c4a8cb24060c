package embedded

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
)

// limits holds the counters of the rate limits of all owners. The one-minute windows are in memory only, because storing them
// would need a commit for each request. A restart resets these windows. The daily count of an account's test keys is in the file
// and survives a restart. limits also holds the requests of the last second that the file's usage does not include yet. Its
// methods may be called from any goroutine.
type limits struct {
	mu       sync.Mutex
	counters map[conversation.Owner]*limit.Counters // guarded by mu
	users    map[userOf]*limit.User                 // guarded by mu; only users that their tier limits to less than the account
	frames   map[apiKey]*limit.Window               // guarded by mu; frames on sockets, by API key
	reserved map[string]turnTokens                  // guarded by mu; reservations of live turns, by reply id
	swept    limit.Second                           // guarded by mu; time at which idle counters were last removed
	requests map[hourAt]int64                       // guarded by mu; admitted requests that are not yet counted in the file
	tick     *time.Timer                            // guarded by mu; calls due; nil if requests is empty
	due      func()                                 // constant; makes the committer add requests to the file's usage
}

// userOf identifies a user of an owner, and apiKey an API key. turnTokens holds the tokens that a turn has reserved, and the user
// of the turn's session.
type (
	userOf struct {
		owner conversation.Owner
		user  string
	}
	apiKey struct {
		owner conversation.Owner
		id    string
	}
	turnTokens struct {
		user userOf
		limit.TurnTokens
	}
)

// idleEvery is the interval, in seconds, at which idle counters are removed from memory.
const idleEvery = 300

func newLimits(due func()) limits {
	return limits{
		counters: make(map[conversation.Owner]*limit.Counters), users: make(map[userOf]*limit.User),
		frames: make(map[apiKey]*limit.Window), reserved: make(map[string]turnTokens), requests: make(map[hourAt]int64), due: due,
	}
}

// of returns the owner's counters, and creates missing counters. The caller must hold mu.
func (l *limits) of(o conversation.Owner, now limit.Second) *limit.Counters {
	l.sweep(now)
	return counted(l.counters, o)
}

// user returns the counts of a user, and creates missing ones. It returns nil if the limits do not limit users to less than the
// account, or if the user is "". The caller must hold mu, and must have called of.
func (l *limits) user(limits *limit.TierLimits, u userOf) *limit.User {
	if u.user == "" || !limits.LimitsUsers() {
		return nil
	}
	return counted(l.users, u)
}

// counted returns the counts of a key, and creates missing ones.
func counted[K comparable, C any](all map[K]*C, key K) *C {
	c := all[key]
	if c == nil {
		c = new(C)
		all[key] = c
	}
	return c
}

// sweep removes idle counts from memory every idleEvery seconds. The caller must hold mu.
func (l *limits) sweep(now limit.Second) {
	if now < l.swept+idleEvery {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.counters, func(_ conversation.Owner, c *limit.Counters) bool { return c.Idle(now) })
	maps.DeleteFunc(l.users, func(_ userOf, u *limit.User) bool { return u.Idle(now) })
	maps.DeleteFunc(l.frames, func(_ apiKey, w *limit.Window) bool { return w.Used(now) == 0 })
}

// admit counts a request, or refuses it with an *auth.LimitError. For a test key, day is the stored daily count of the key's
// account, and admit returns the new count. For a live key, day is zero. user is the user for whom the request counts; "" for
// none.
func (l *limits) admit(a *auth.Admission, day limit.Day, user string) (limit.Day, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	owner := ownerOf(a.Principal.Owner())
	c := l.of(owner, now)
	c.Day = day
	decision := c.Admit(now, limit.Request{Limits: a.Limits, Test: isTest(a), User: l.user(&a.Limits, userOf{owner, user})})
	a.SetDecision(decision)
	if !decision.Admitted() {
		return day, &auth.LimitError{Decision: decision}
	}
	l.note(hourAt{owner, usage.Hour(now / 3600)})
	return c.Day, nil
}

// reserve reserves the tokens of a turn, or returns an *auth.LimitError. user is the user of the turn's session.
func (l *limits) reserve(a *auth.Admission, user string, tokens int) (turnTokens, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	of := userOf{ownerOf(a.Principal.Owner()), user}
	r, refused := l.of(of.owner, now).ReserveTokens(now, a.Limits, l.user(&a.Limits, of), tokens)
	if refused.Wait > 0 {
		admitted, _ := a.Decision()
		return turnTokens{}, &auth.LimitError{Decision: admitted.RefuseTokens(refused)}
	}
	return turnTokens{of, r}, nil
}

// release cancels the reservation of a turn that did not begin.
func (l *limits) release(r turnTokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replace(r, 0)
}

// replace replaces the reservation of a turn with the tokens that the turn used. The caller must hold mu.
func (l *limits) replace(r turnTokens, used int) {
	now := limit.SecondOf(time.Now())
	c, u := l.of(r.user.owner, now), (*limit.User)(nil)
	if r.User.Tokens > 0 {
		u = counted(l.users, r.user)
	}
	c.SettleTokens(now, u, &r.TurnTokens, used)
}

// hold keeps the reservation of a turn that has begun, until settle.
func (l *limits) hold(replyID string, r turnTokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved[replyID] = r
}

// settle replaces the reservation of a turn by the tokens that the turn used. Only the first call for a turn has an effect.
func (l *limits) settle(key conversation.TurnKey, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.reserved[key.ReplyID]
	if !ok {
		return
	}
	delete(l.reserved, key.ReplyID)
	l.replace(r, used)
}

// charge counts tokens that were used for a user outside a turn, for example by a summary.
func (l *limits) charge(u userOf, used int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := limit.SecondOf(time.Now())
	l.of(u.owner, now).Tokens.Charge(now, used)
	if of := l.users[u]; of != nil {
		of.Tokens.Charge(now, used)
	}
}

// UserUse implements auth.Store.
func (s *Store) UserUse(_ context.Context, owner auth.Owner, userID string) (limit.UserUse, error) {
	l := &s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[userOf{ownerOf(owner), userID}]; u != nil {
		return u.Use(limit.SecondOf(time.Now())), nil
	}
	return limit.UserUse{}, nil
}

// TakeFrames implements auth.Store.
func (s *Store) TakeFrames(_ context.Context, owner auth.Owner, keyID string, take limit.FrameTake) (limit.FrameLease, error) {
	l := &s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(limit.SecondOf(now))
	return counted(l.frames, apiKey{ownerOf(owner), keyID}).Lease(now, take), nil
}

func isTest(a *auth.Admission) bool { return a != nil && a.Principal.Mode == auth.Test }

// Admit implements auth.Store.
func (s *Store) Admit(ctx context.Context) error {
	return s.view(ctx, func(*reading) error { return nil })
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	return s.view(ctx, func(r *reading) error {
		at := keyKey(p.Owner(), p.KeyID)
		if !bytes.Equal(r.bucket(secretsBucket).Get(p.Secret[:]), at) {
			return auth.ErrInvalidToken
		}
		// Only the members that decide whether a secret works, because each member costs allocations.
		var stored struct {
			ExpiresAt time.Time
			Revoked   bool
			Secrets   []auth.Secret
		}
		if json.Unmarshal(r.bucket(keysBucket).Get(at), &stored) != nil {
			return errRecord
		}
		key := auth.Key{ExpiresAt: stored.ExpiresAt, Revoked: stored.Revoked, Secrets: stored.Secrets}
		if _, ok := key.FindSecret(p.Secret, r.now.Go()); !ok {
			return auth.ErrInvalidToken
		}
		return nil
	})
}

// admitTest admits a request of a test key in a separate transaction. So the request counts for the day before it has any effect,
// even if it fails later.
func (s *Store) admitTest(ctx context.Context, a *auth.Admission) error {
	return s.run(ctx, func(w *writing) error {
		if err := w.alive(a); err != nil {
			return err
		}
		account := []byte(a.Principal.Account)
		day, err := w.day(account)
		if err != nil {
			return err
		}
		if !a.Pending() { // the transaction runs again: the request is already counted in memory, but not in the file
			day.Take(limit.SecondOf(w.now.Go()), limit.TestKeyRequestsPerDay)
		} else if day, err = w.admitFor(s, a, day); err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(day.Number))
		return w.put(daysBucket, account, binary.BigEndian.AppendUint64(value, uint64(day.Count)))
	})
}

// admit admits a request of a live key, unless the request was admitted or refused before.
func (r *reading) admit(s *Store, a *auth.Admission) error {
	if !a.Pending() {
		return nil
	}
	if err := r.alive(a); err != nil {
		return err
	}
	_, err := r.admitFor(s, a, limit.Day{})
	return err
}

// admitFor admits a request, and counts it for the user of a.Subject.
func (r *reading) admitFor(s *Store, a *auth.Admission, day limit.Day) (limit.Day, error) {
	user, err := r.subject(a)
	if err != nil {
		return day, err
	}
	return s.limits.admit(a, day, user)
}

// subject returns the user for whom a request counts; "" for none.
func (r *reading) subject(a *auth.Admission) (string, error) {
	switch {
	case a.Limits.UserRequests() == 0:
		return "", nil
	case !strings.HasPrefix(a.Subject, conversation.SessionPrefix):
		return a.Subject, nil
	}
	session, err := r.session(ref{ownerOf(a.Principal.Owner()), a.Subject})
	if errors.Is(err, conversation.ErrSessionNotFound) {
		return "", nil
	}
	return session.UserID, err
}

// alive returns auth.ErrInvalidToken if the secret of the request has been removed or has expired. The admin key from the
// configuration, which has no hash, is always valid.
func (r *reading) alive(a *auth.Admission) error {
	p := &a.Principal
	if p.Secret == (auth.Hash{}) {
		return nil
	}
	at := r.bucket(secretsBucket).Get(p.Secret[:])
	if !bytes.Equal(at, keyKey(p.Owner(), p.KeyID)) || !p.Until.IsZero() && !r.now.Go().Before(p.Until) {
		return auth.ErrInvalidToken
	}
	return nil
}

// day returns the stored daily count of requests with the account's test keys.
func (r *reading) day(account []byte) (limit.Day, error) {
	value := r.bucket(daysBucket).Get(account)
	switch len(value) {
	case 0:
		return limit.Day{}, nil
	case 16:
		return limit.Day{
			Number: int64(binary.BigEndian.Uint64(value)), Count: int(binary.BigEndian.Uint64(value[8:])),
		}, nil
	}
	return limit.Day{}, errRecord
}
