package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// requestOf returns a context that carries the admission of a new request for a user, or for a user's session.
func (s *subject) requestOf(p auth.Principal, f limit.TierLimits, of string) context.Context {
	ctx, a := s.request(p, f)
	a.Subject = of
	return ctx
}

// admitByUser makes one user use up their requests, in all ways in which a request can name the user.
func admitByUser(t *testing.T, s *subject) {
	p := s.key(t)
	f := limit.TierLimits{RequestsPerMinute: 20, TokensPerMinute: 100_000, UserRequestsPerMinute: 4}
	greedy, other := s.create(t, plain()), s.create(t, plain())
	for _, of := range []string{greedy.ID, greedy.UserID, greedy.ID, greedy.UserID} {
		must(t, s.keys.Admit(s.requestOf(p, f, of)), "Admit within the limit")
	}
	for _, of := range []string{greedy.ID, greedy.UserID} {
		ctx := s.requestOf(p, f, of)
		d := refused(t, "Admit over the limit", s.keys.Admit(ctx), limit.ByUserRequests)
		same(t, "the user's limit", d.RefusedLimit, 4)
		same(t, "X-RateLimit-Limit", d.Limit, 20)
		same(t, "X-RateLimit-Remaining", d.Remaining, 16)
	}
	ctx := s.requestOf(p, f, greedy.ID)
	_, err := s.store.BeginTurn(ctx, s.owner, question(greedy.ID, "?"))
	refused(t, "BeginTurn over the limit", err, limit.ByUserRequests)
	same(t, "a session after the refusal", s.session(t, greedy.ID), greedy)
	for range 2 {
		begun, err := s.store.BeginTurn(s.requestOf(p, f, other.ID), s.owner, question(other.ID, "?"))
		must(t, err, "BeginTurn of another user")
		s.end(t, begun.Key, answer("!"))
	}
	must(t, s.keys.Admit(s.requestOf(p, f, "")), "Admit without a user")
	must(t, s.keys.Admit(s.requestOf(p, f, "session_0000000000000000")), "Admit for an unknown session")
	ctx, a := s.request(p, f)
	must(t, s.keys.Admit(ctx), "Admit")
	d, _ := a.Decision()
	same(t, "requests that remain for the account", d.Remaining, 20-9)
	s.use(t, greedy.UserID, limit.UserUse{Requests: 4})
	s.use(t, other.UserID, limit.UserUse{Requests: 2})
}

// use checks the numbers of requests and tokens that count for a user in the last minute.
func (s *subject) use(t *testing.T, userID string, want limit.UserUse) {
	t.Helper()
	used, err := s.keys.UserUse(s.ctx, auth.Owner{Account: s.owner.Account, Mode: string(s.owner.Mode)}, userID)
	must(t, err, "UserUse")
	same(t, "the requests and tokens that count for the user", used, want)
}

// admitWithoutUserLimits makes a request and a turn of one user. The tier does not limit users to less than the account, so
// nothing may count for the user.
func admitWithoutUserLimits(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, plain())
	for _, f := range []limit.TierLimits{
		{RequestsPerMinute: 300, TokensPerMinute: 100_000},
		{RequestsPerMinute: 300, TokensPerMinute: 100_000, UserRequestsPerMinute: 300, UserTokensPerMinute: 100_000},
	} {
		begun, err := s.store.BeginTurn(s.requestOf(p, f, session.ID), s.owner, question(session.ID, "?"))
		must(t, err, "BeginTurn")
		s.end(t, begun.Key, answer("!"))
		must(t, s.keys.Admit(s.requestOf(p, f, session.UserID)), "Admit")
		s.use(t, session.UserID, limit.UserUse{})
	}
}

// beginByUser makes one user reserve all tokens of a minute, so the user's next turn must be refused. When the first turn has
// ended, only the tokens that it used may count, even if its session was deleted.
func beginByUser(t *testing.T, s *subject) {
	p := s.key(t)
	first, other := s.create(t, small()), s.create(t, small())
	ofSameUser := small()
	ofSameUser.UserID = first.UserID
	second := s.create(t, ofSameUser)
	need := estimate(first)
	f := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000, UserTokensPerMinute: need}
	begin := func(session conversation.Session) (conversation.TurnStart, error) {
		return s.store.BeginTurn(s.requestOf(p, f, session.ID), s.owner, question(session.ID, "?"))
	}
	begun, err := begin(first)
	must(t, err, "BeginTurn")
	_, err = begin(second)
	d := refused(t, "the user's second turn", err, limit.ByUserTokens)
	same(t, "the limit of the user's tokens", d.RefusedLimit, need)
	same(t, "X-RateLimit-Limit", d.Limit, 300)
	same(t, "X-RateLimit-Remaining", d.Remaining, 298)
	same(t, "a session after a refusal", s.session(t, second.ID), second)
	_, err = begin(other)
	must(t, err, "BeginTurn of another user")
	s.end(t, begun.Key, answer("!")) // the turn used 22 tokens
	_, err = begin(second)
	refused(t, "a turn that needs the tokens of the first", err, limit.ByUserTokens)
	f.UserTokensPerMinute += 22
	begun, err = begin(second)
	must(t, err, "BeginTurn when the user's limit has room for the turn")

	_, err = s.store.DeleteSession(s.ctx, s.owner, second.ID)
	must(t, err, "DeleteSession")
	_, err = s.store.EndTurn(s.ctx, begun.Key, answer("!"), conversation.Timing{})
	wantError(t, "EndTurn of a deleted session", err, conversation.ErrSessionNotFound)
	f.UserTokensPerMinute += 22
	_, err = begin(s.create(t, ofSameUser))
	must(t, err, "BeginTurn after the turn of a deleted session was settled")
}

// leaseFrames takes leases of WebSocket frames for two keys. A lease must not exceed what is left of its key's limit. Frames
// that are given back must be free again, and another key's frames must not count.
func leaseFrames(t *testing.T, s *subject) {
	owner := auth.Owner{Account: s.owner.Account, Mode: string(s.owner.Mode)}
	lease := func(key string, want int, back limit.Reservation) limit.FrameLease {
		t.Helper()
		got, err := s.keys.TakeFrames(s.ctx, owner, key, limit.FrameTake{Limit: 10, Want: want, Back: back})
		must(t, err, "TakeFrames")
		if got.Life <= 0 || got.Life > time.Second || got.Wait < 0 || got.Wait > 61 {
			t.Errorf("the lease is %+v, want a life of at most 1 s and a wait of at most 61 s", got)
		}
		return got
	}
	first := lease("key_1", 6, limit.Reservation{})
	same(t, "frames of the first lease", first.Taken.Tokens, 6)
	second := lease("key_1", 6, limit.Reservation{})
	same(t, "frames of the second lease", second.Taken.Tokens, 4)
	third := lease("key_1", 6, limit.Reservation{})
	same(t, "frames of the third lease", third.Taken.Tokens, 0)
	if third.Wait == 0 {
		t.Error("a lease without frames has no wait")
	}
	same(t, "frames of another key's lease", lease("key_2", 6, limit.Reservation{}).Taken.Tokens, 6)
	first.Taken.Tokens = 5 // one of six frames was used
	same(t, "frames of a lease after some were given back", lease("key_1", 6, first.Taken).Taken.Tokens, 5)
}

// enforceMonth makes an owner use up the tokens of the month. The next turn must be refused, unless the limit is not enforced
// or is raised.
func enforceMonth(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, plain())
	f := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000, TokensPerMonth: 44, EnforceMonth: true}
	begin := func() (conversation.TurnStart, error) {
		return s.store.BeginTurn(s.requestOf(p, f, session.ID), s.owner, question(session.ID, "?"))
	}
	for range 2 { // each turn uses 22 tokens
		begun, err := begin()
		must(t, err, "BeginTurn within the quota")
		s.end(t, begun.Key, answer("!"))
	}
	_, err := begin()
	over, ok := errors.AsType[*auth.QuotaError](err)
	if !ok || over.Quota != limit.QuotaTokensPerMonth || over.Used != 44 || over.Limit != 44 {
		t.Fatalf("BeginTurn after 44 tokens: %v, want a refusal by tokensPerMonth with 44 of 44", err)
	}
	same(t, "messages after the refusal", s.session(t, session.ID).MessageCount, 4)
	f.EnforceMonth = false
	begun, err := begin()
	must(t, err, "BeginTurn if the month is not enforced")
	s.end(t, begun.Key, answer("!"))
	f.EnforceMonth, f.TokensPerMonth = true, 67
	_, err = begin()
	must(t, err, "BeginTurn with 66 of 67 tokens used")
}
