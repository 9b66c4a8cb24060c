package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
)

func admissionTests() []test {
	return []test{
		{"limit of 300 admits 300 of 400 concurrent requests", admitConcurrently},
		{"rate limits are per owner", admitByOwner},
		{"declared admin key is always admitted", admitDeclared},
		{"refused operation changes nothing", admitRefuses},
		{"every operation admits its request once", admitOnce},
		{"test keys of an account share a daily limit", admitTestDay},
		{"revoked or replaced secret is refused, not counted", admitDeadKey},
		{"secret with a foreign account or key is refused", admitForeignSecret},
		{"queued turn of a revoked key is refused", beginWithDeadKey},
		{"turn reserves and settles tokens", beginReserves},
		{"refused turns reserve no tokens", refusalsReserveNothing},
		{"user at the limit of requests does not stop other users", admitByUser},
		{"users without limits of their own are not counted", admitWithoutUserLimits},
		{"user at the limit of tokens does not stop other users", beginByUser},
		{"lease of frames comes from one window per key", leaseFrames},
		{"turn is refused when the month's tokens are used up", enforceMonth},
	}
}

// smallLimits are rate limits that a test can reach.
var smallLimits = limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000}

// key creates an API key of the subject's owner. It returns the principal of requests with that key.
func (s *subject) key(t *testing.T) auth.Principal {
	t.Helper()
	secret := auth.NewSecret(string(s.owner.Mode))
	key, err := s.keys.CreateKey(s.ctx, auth.Key{
		Owner: auth.Owner{Account: s.owner.Account, Mode: string(s.owner.Mode)}, ID: auth.KeyPrefix + conversation.RandomText(16),
		Name: "key", Scopes: []auth.Scope{auth.Admin}, Secrets: []auth.Secret{{Hash: auth.HashOf(secret)}},
	}, limit.Pro)
	must(t, err, "CreateKey")
	return auth.Principal{
		Account: key.Account, Mode: key.Mode, Tier: limit.Pro, KeyID: key.ID, Scopes: key.Scopes, Secret: key.Secrets[0].Hash,
	}
}

// request returns a context that carries the admission of a new request.
func (s *subject) request(p auth.Principal, f limit.TierLimits) (context.Context, *auth.Admission) {
	a := &auth.Admission{Principal: p, Limits: f}
	return auth.WithAdmission(s.ctx, a), a
}

// admit admits a request, and returns the decision.
func (s *subject) admit(t *testing.T, p auth.Principal, f limit.TierLimits) limit.Decision {
	t.Helper()
	ctx, a := s.request(p, f)
	must(t, s.keys.Admit(ctx), "Admit")
	d, ok := a.Decision()
	if !ok || a.Pending() || !d.Admitted() {
		t.Fatalf("Admit returned no error, but the decision is %+v, %v", d, ok)
	}
	return d
}

// refused checks that err is an *auth.LimitError for the limit by. It returns the decision in err.
func refused(t *testing.T, what string, err error, by limit.Kind) limit.Decision {
	t.Helper()
	refusal, ok := errors.AsType[*auth.LimitError](err)
	if !ok {
		t.Fatalf("%s: error %v, want a refusal by %v", what, err, by)
	}
	d := refusal.Decision
	if d.Refused != by || d.RetryAfter < 1 || by != limit.ByDay && d.RetryAfter > 61 || d.Remaining < 0 {
		t.Errorf("%s: %+v, want a refusal by %v", what, d, by)
	}
	return d
}

func admitConcurrently(t *testing.T, s *subject) {
	p := s.key(t)
	var admitted, others atomic.Int64
	var work sync.WaitGroup
	for range 400 {
		work.Go(func() {
			ctx, a := s.request(p, smallLimits)
			err := s.keys.Admit(ctx)
			d, _ := a.Decision()
			switch refusal, ok := errors.AsType[*auth.LimitError](err); {
			case err == nil && d.Admitted():
				admitted.Add(1)
			case !ok || refusal.Decision.Refused != limit.ByRequests || d.Refused != limit.ByRequests:
				others.Add(1)
			}
		})
	}
	work.Wait()
	same(t, "the number of admitted requests", admitted.Load(), 300)
	same(t, "the number of requests with another result", others.Load(), 0)
}

func admitRefuses(t *testing.T, s *subject) {
	p := s.key(t)
	one := limit.TierLimits{RequestsPerMinute: 1, TokensPerMinute: 1000}
	before := limit.SecondOf(time.Now())
	d := s.admit(t, p, one)
	after := limit.SecondOf(time.Now())
	same(t, "Limit", d.Limit, 1)
	same(t, "Remaining", d.Remaining, 0)
	if d.Reset <= before || d.Reset > after+61 { // the window is 61 buckets of a second
		t.Errorf("Reset is %d after a request between %d and %d", d.Reset, before, after)
	}
	ctx, a := s.request(p, one)
	_, err := s.store.CreateSession(ctx, s.owner, plain())
	refused(t, "CreateSession", err, limit.ByRequests)
	if a.Pending() {
		t.Error("the request is still pending after it was refused")
	}
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 10})
	must(t, err, "Sessions")
	same(t, "sessions after the refusal", len(page.Sessions), 0)
}

func admitOnce(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, plain())
	used := 0
	for name, operation := range map[string]func(ctx context.Context) error{
		"CreateSession": func(ctx context.Context) error {
			_, err := s.store.CreateSession(ctx, s.owner, plain())
			return err
		},
		"Session": func(ctx context.Context) error {
			_, err := s.store.Session(ctx, s.owner, session.ID)
			return err
		},
		"Session, unknown": func(ctx context.Context) error {
			_, err := s.store.Session(ctx, s.owner, "session_0000000000000000")
			wantError(t, "Session", err, conversation.ErrSessionNotFound)
			return nil
		},
		"Sessions": func(ctx context.Context) error {
			_, err := s.store.Sessions(ctx, s.owner, conversation.SessionQuery{Limit: 1})
			return err
		},
		"Messages": func(ctx context.Context) error {
			_, err := s.store.Messages(ctx, s.owner, session.ID, conversation.MessageQuery{Limit: 1})
			return err
		},
		"Message, unknown": func(ctx context.Context) error {
			_, err := s.store.Message(ctx, s.owner, session.ID, "msg_0000000000000000")
			wantError(t, "Message", err, conversation.ErrMessageNotFound)
			return nil
		},
		"ClearMessages": func(ctx context.Context) error {
			_, err := s.store.ClearMessages(ctx, s.owner, session.ID, "w")
			return err
		},
		"BeginTurn": func(ctx context.Context) error {
			begun, err := s.store.BeginTurn(ctx, s.owner, question(session.ID, "?"))
			if err == nil {
				s.end(t, begun.Key, answer("!"))
			}
			return err
		},
		"DeleteSession, unknown": func(ctx context.Context) error {
			_, err := s.store.DeleteSession(ctx, s.owner, "session_0000000000000000")
			wantError(t, "DeleteSession", err, conversation.ErrSessionNotFound)
			return nil
		},
		"Keys": func(ctx context.Context) error {
			_, err := s.keys.Keys(ctx, p.Owner(), auth.KeyQuery{Limit: 1})
			return err
		},
		"PutTicket": func(ctx context.Context) error {
			_, err := s.keys.PutTicket(ctx, newHash(), auth.Ticket{Secret: p.Secret})
			return err
		},
		"RevokeKey, unknown": func(ctx context.Context) error {
			err := s.keys.RevokeKey(ctx, p.Owner(), "key_0000000000000000", auth.CLI)
			wantError(t, "RevokeKey", err, auth.ErrKeyNotFound)
			return nil
		},
	} {
		ctx, a := s.request(p, smallLimits)
		must(t, operation(ctx), name)
		must(t, s.keys.Admit(ctx), name+": Admit")
		used++
		d, ok := a.Decision()
		if !ok || d.Remaining != 300-used {
			t.Errorf("%s: %d requests remain, want %d", name, d.Remaining, 300-used)
		}
	}
}

func admitByOwner(t *testing.T, s *subject) {
	s.admit(t, s.key(t), smallLimits)
	other := s.as(conversation.Owner{Account: s.owner.Account + " II", Mode: s.owner.Mode})
	same(t, "another account's requests", other.admit(t, other.key(t), smallLimits).Remaining, 299)
	development := s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
	same(t, "the other mode's requests of the day", development.admit(t, development.key(t), smallLimits).Remaining, limit.TestKeyRequestsPerDay-1)
	same(t, "the first account's requests", s.admit(t, s.key(t), smallLimits).Remaining, 298)
}

func admitTestDay(t *testing.T, s *subject) {
	s = s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
	first, second := s.key(t), s.key(t)
	const day = 24 * 60 * 60
	today := time.Now().Unix() / day
	var admitted atomic.Int64
	var work sync.WaitGroup
	for i := range limit.TestKeyRequestsPerDay + 20 {
		work.Go(func() {
			p := first
			if i%2 == 0 {
				p = second
			}
			ctx, _ := s.request(p, smallLimits)
			if s.keys.Admit(ctx) == nil {
				admitted.Add(1)
			}
		})
	}
	work.Wait()
	ctx, _ := s.request(first, smallLimits)
	_, err := s.store.Sessions(ctx, s.owner, conversation.SessionQuery{Limit: 1})
	if time.Now().Unix()/day != today {
		t.Skip("the UTC day ended during the test")
	}
	same(t, "the number of admitted requests", admitted.Load(), limit.TestKeyRequestsPerDay)
	d := refused(t, "one request over the daily limit", err, limit.ByDay)
	same(t, "the day's limit", d.Limit, limit.TestKeyRequestsPerDay)
	same(t, "the end of the day", d.Reset, limit.Second((today+1)*day))
}

func admitDeadKey(t *testing.T, s *subject) {
	p, rotated, alive := s.key(t), s.key(t), s.key(t)
	must(t, s.keys.KeyAlive(s.ctx, p), "KeyAlive")
	must(t, s.keys.RevokeKey(s.ctx, p.Owner(), p.KeyID, auth.CLI), "RevokeKey")
	for range 2 { // the first rotation keeps the original secret valid, the second ends it
		_, err := s.keys.RotateKey(s.ctx, p.Owner(), rotated.KeyID, auth.HashOf(auth.NewSecret(p.Mode)), "svc_live_x", auth.CLI)
		must(t, err, "RotateKey")
	}
	for name, dead := range map[string]auth.Principal{"revoked": p, "rotated out": rotated} {
		ctx, a := s.request(dead, smallLimits)
		wantError(t, name+": Admit", s.keys.Admit(ctx), auth.ErrInvalidToken)
		wantError(t, name+": KeyAlive", s.keys.KeyAlive(ctx, dead), auth.ErrInvalidToken)
		_, err := s.store.CreateSession(ctx, s.owner, plain())
		wantError(t, name+": CreateSession", err, auth.ErrInvalidToken)
		if _, ok := a.Decision(); ok {
			t.Errorf("%s: the request reached the limits", name)
		}
	}
	same(t, "requests that remain", s.admit(t, alive, smallLimits).Remaining, 299)
}

// admitForeignSecret admits requests of principals that have the hash of a working secret, but another account, mode or key.
// The refusals must not affect the real key.
func admitForeignSecret(t *testing.T, s *subject) {
	p, other := s.key(t), s.key(t)
	account, mode, key := p, p, p
	account.Account += "2"
	mode.Mode = auth.Test
	key.KeyID = other.KeyID
	for name, wrong := range map[string]auth.Principal{"account": account, "mode": mode, "key": key} {
		ctx, _ := s.request(wrong, smallLimits)
		wantError(t, "Admit with a wrong "+name, s.keys.Admit(ctx), auth.ErrInvalidToken)
		wantError(t, "KeyAlive with a wrong "+name, s.keys.KeyAlive(s.ctx, wrong), auth.ErrInvalidToken)
		found, err := s.keys.KeyByHash(s.ctx, p.Secret)
		must(t, err, "KeyByHash after a wrong "+name)
		same(t, "the key of the secret", found.Key.ID, p.KeyID)
		must(t, s.keys.KeyAlive(s.ctx, p), "KeyAlive of the real key after a wrong "+name)
	}
}

func beginWithDeadKey(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, plain())
	first := s.begin(t, question(session.ID, "first"))
	ctx, _ := s.request(p, smallLimits)
	second := question(session.ID, "second")
	begun, err := s.store.BeginTurn(ctx, s.owner, second)
	must(t, err, "BeginTurn")
	if begun.Queued == nil {
		t.Fatal("the second turn is not queued")
	}
	third := question(session.ID, "third")
	queued := s.queue(t, third)
	must(t, s.keys.RevokeKey(s.ctx, p.Owner(), p.KeyID, auth.CLI), "RevokeKey")
	s.end(t, first.Key, answer("to the first"))
	granted(t, begun.Queued)
	_, err = s.store.BeginTurn(ctx, s.owner, second)
	wantError(t, "BeginTurn", err, auth.ErrInvalidToken)
	granted(t, queued)
	s.begin(t, third)
}

// small returns a new session with a small context window.
func small() conversation.NewSession {
	session := plain()
	session.Context.MaxTokens = 1024
	return session
}

// estimate returns the number of tokens that a question reserves in the session.
func estimate(session conversation.Session) int {
	return window.Estimate(session.Context.MaxTokens, session.HistoryTokens, inPrompt(10))
}

func beginReserves(t *testing.T, s *subject) {
	p := s.key(t)
	sessions := []conversation.Session{s.create(t, small()), s.create(t, small()), s.create(t, small())}
	need := estimate(sessions[0])
	two := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 2 * need}
	begin := func(session conversation.Session) (conversation.TurnStart, error) {
		ctx, _ := s.request(p, two)
		return s.store.BeginTurn(ctx, s.owner, question(session.ID, "?"))
	}
	first, err := begin(sessions[0])
	must(t, err, "BeginTurn")
	_, err = begin(sessions[1])
	must(t, err, "BeginTurn")
	_, err = begin(sessions[2])
	d := refused(t, "the third turn", err, limit.ByTokens)
	same(t, "the limit of tokens", d.Limit, 2*need)
	same(t, "a session after a refusal", s.session(t, sessions[2].ID), sessions[2])
	s.end(t, first.Key, answer("!")) // the turn used 22 tokens
	_, err = begin(sessions[2])
	refused(t, "a turn that needs the tokens of the first", err, limit.ByTokens)
	two.TokensPerMinute += 22
	_, err = begin(sessions[2])
	must(t, err, "BeginTurn when the limit has room for the turn")
}

func refusalsReserveNothing(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, small())
	one := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: estimate(session)}
	live := s.begin(t, question(session.ID, "live"))
	large := question(session.ID, "larger than the window")
	large.Tokens = 5000
	busy := question(session.ID, "busy")
	busy.OnBusy = conversation.Reject
	try := func(what string, turn conversation.NewTurn, want error) {
		t.Helper()
		ctx, _ := s.request(p, one)
		_, err := s.store.BeginTurn(ctx, s.owner, turn)
		if overflow := new(conversation.OverflowError); want == nil && !errors.As(err, &overflow) {
			t.Errorf("%s: %v", what, err)
		} else if want != nil {
			wantError(t, what, err, want)
		}
	}
	try("busy session", busy, conversation.ErrSessionBusy)
	try("unknown session", question("session_0000000000000000", "?"), conversation.ErrSessionNotFound)
	s.end(t, live.Key, conversation.Message{Status: "failed", Usage: &conversation.Usage{}})
	try("turn larger than the window", large, nil)
	one.TokensPerMinute = estimate(s.session(t, session.ID))
	ctx, _ := s.request(p, one)
	_, err := s.store.BeginTurn(ctx, s.owner, question(session.ID, "now"))
	must(t, err, "BeginTurn after the refusals")
}

func admitDeclared(t *testing.T, s *subject) {
	p := auth.Principal{Account: s.owner.Account, Mode: string(s.owner.Mode), Tier: limit.Pro, KeyID: "key_declared00000000"}
	same(t, "requests that remain", s.admit(t, p, smallLimits).Remaining, 299)
}
