package redis

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
)

// atClock returns a script that reads its clock from the script's last argument, in Unix seconds.
func atClock(t *testing.T, name, text string, is property) *script {
	t.Helper()
	const clock = "redis.call('TIME')"
	composed := compile(text, is).text
	if strings.Count(composed, clock) != 1 {
		t.Fatalf("%s does not read the clock in exactly one place", name)
	}
	return unknownScript(name, strings.Replace(composed, clock, "{ARGV[#ARGV], '0'}", 1))
}

// unknownScript returns a script with a digest that no server knows, so that send also sends the text.
func unknownScript(name, text string) *script {
	return &script{name: name, compiled: func() compiled { return compiled{text: text, digest: strings.Repeat("0", 40)} }}
}

// testTokens is an operation that calls the function settle or charge in lua/lib/rate_window.lua.
const testTokens = `
local key, a, b, c = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if ARGV[1] == 'settle' then settle(key, a, b, c) return 1 end
charge(key, a)
return 1`

// testReserve is an operation that calls reserve_tokens in lua/lib/admission.lua.
const testReserve = `
local account, refused, user = reserve_tokens(tonumber(ARGV[1]), ARGV[2])
return {account or false, refused or false, user or false}`

// newTestScript returns a script that runs operation, which is Lua code.
func newTestScript(name, operation string, is property) *script {
	return &script{name: name, is: is, compiled: sync.OnceValue(func() compiled { return compile(operation, is) })}
}

// pair holds the limits of an owner, and of two of the owner's users, twice: in Redis (s), and in auth/limit (model, users and
// frames). The methods admits, reserves, settles, charges and leases make the same call to Redis and to auth/limit. The time of
// both calls is now.
type pair struct {
	t         *testing.T
	s         *Store
	principal auth.Principal
	admit     *script
	tokens    *script
	reserve   *script
	lease     *script

	now    limit.Second
	model  limit.Counters
	users  map[string]*limit.User
	frames limit.Window
}

// turnTokens are the tokens that a turn of a user has reserved.
type turnTokens struct {
	user string
	limit.TurnTokens
}

func newPair(t *testing.T, mode string) *pair {
	return &pair{
		t: t, s: newStore(t), principal: auth.Principal{Account: newAccount(), Mode: mode},
		admit:   atClock(t, "admit", source("admit.lua"), admits),
		tokens:  atClock(t, "tokens", testTokens, 0),
		reserve: atClock(t, "reserve", testReserve, reserves),
		lease:   atClock(t, "take_frames", source("take_frames.lua"), 0),
		now:     limit.SecondOf(time.Now()) + 1000*24*3600, // keys expire by the server's clock, so now must be later
		users:   map[string]*limit.User{"user_0000000000000001": {}, "user_0000000000000002": {}},
	}
}

func (p *pair) tag() string { return ownerTag(p.principal.Owner()) }

func (p *pair) run(sc *script, keys []string, args ...any) any {
	p.t.Helper()
	reply, err := p.s.send(p.t.Context(), sc, keys, nil, append(args, int64(p.now)))
	must(p.t, err)
	return reply
}

func (p *pair) same(what string, got, want any) {
	p.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Fatalf("%s at %d: Redis returns %v, auth/limit %v", what, p.now, got, want)
	}
}

// admits admits a request for a user; "" for none.
func (p *pair) admits(f limit.TierLimits, user string) {
	p.t.Helper()
	a := &auth.Admission{Principal: p.principal, Limits: f, Subject: user}
	keys, args, _ := withAdmission(p.admit, a, p.tag(), nil, nil)
	_, err := p.s.decide(p.t.Context(), p.admit, a, p.run(p.admit, keys, args...))
	got, _ := a.Decision()
	want := p.model.Admit(p.now, limit.Request{Limits: f, Test: p.principal.Mode == auth.Test, User: p.users[user]})
	shown := func(d limit.Decision) string {
		return fmt.Sprint(d.Refused, d.RefusedLimit, d.Limit, d.Remaining, d.Reset, d.RetryAfter)
	}
	p.same("the decision", shown(got), shown(want))
	p.same("refused", err != nil, !want.Admitted())
}

// reserves makes a reservation for a turn of a user, in Redis and in the model. It assumes that the request of the turn was
// admitted before.
func (p *pair) reserves(n int, f limit.TierLimits, user string) turnTokens {
	p.t.Helper()
	a := &auth.Admission{Principal: p.principal, Limits: f}
	a.SetDecision(limit.Decision{Limit: 7, Remaining: 5, Reset: 3})
	want, standing := p.model.ReserveTokens(p.now, f, p.users[user], n)
	keys, args, _ := withAdmission(beginTurnScript, a, p.tag(), nil, []any{n, user}) // atClock's scripts have no properties
	parts := list(list(p.run(p.reserve, keys, args...))[1])
	if standing.Wait > 0 {
		refused, err := tokensRefused(a, parts[1])
		must(p.t, err)
		admitted, _ := a.Decision()
		p.same("the refusal of a reservation", refused.Decision, admitted.RefuseTokens(standing))
		return turnTokens{}
	}
	p.same("the reservation", parts[0], []any{int64(want.Owner.Second), int64(want.Owner.Tokens)})
	if want.User.Tokens > 0 {
		p.same("the reservation of the user", parts[2], []any{int64(want.User.Second), int64(want.User.Tokens)})
	}
	return turnTokens{user, want}
}

func (p *pair) settles(r turnTokens, used int) {
	p.t.Helper()
	p.run(p.tokens, []string{tokensKey(p.tag())}, "settle", int64(r.Owner.Second), r.Owner.Tokens, used)
	p.run(p.tokens, []string{userTokensKey(p.tag(), r.user)}, "settle", int64(r.User.Second), r.User.Tokens, used)
	p.model.SettleTokens(p.now, p.users[r.user], &r.TurnTokens, used)
}

func (p *pair) charges(n int) {
	p.t.Helper()
	p.run(p.tokens, []string{tokensKey(p.tag())}, "charge", n, 0, 0)
	p.model.Tokens.Charge(p.now, n)
}

// leases takes a lease of frames, and returns unused frames of the previous lease.
func (p *pair) leases(take limit.FrameTake) limit.Reservation {
	p.t.Helper()
	want := p.frames.Lease(time.Unix(int64(p.now), 0), take)
	got := list(p.run(p.lease, []string{framesKey(p.tag(), "key_1")}, take.Limit, take.Want, int64(take.Back.Second), take.Back.Tokens))
	p.same("the lease", []any{got[1], got[2], got[3]}, []any{want.Taken.Tokens, want.Wait, want.Life.Milliseconds()})
	if want.Wait == 0 {
		p.same("the second of the lease", got[0], int64(want.Taken.Second))
	}
	return want.Taken
}

// TestLimits_RandomCalls_SameAsAuthLimit makes the same random calls to Redis and to auth/limit. The clock also jumps back and
// ahead.
func TestLimits_RandomCalls_SameAsAuthLimit(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			mode := []string{auth.Live, auth.Test}[seed%2]
			p := newPair(t, mode)
			var open []turnTokens
			var lease limit.Reservation
			for range 1200 {
				p.now += limit.Second(clockStep(random))
				most := func() int { return []int{0, 1, 20, 1000, limit.MaxLimit + 5}[random.IntN(5)] }
				f := limit.TierLimits{
					RequestsPerMinute: most(), TokensPerMinute: most(), UserRequestsPerMinute: most(), UserTokensPerMinute: most(),
				}
				user := []string{"", "user_0000000000000001", "user_0000000000000002"}[random.IntN(3)]
				switch random.IntN(7) {
				case 0, 1, 2:
					p.admits(f, user)
				case 3:
					if user == "" {
						f.UserTokensPerMinute = 0 // each turn has a user
					}
					if r := p.reserves(1+random.IntN(600), f, user); r.Owner.Tokens > 0 {
						open = append(open, r)
					}
				case 6:
					lease.Tokens = random.IntN(lease.Tokens + 1)
					lease = p.leases(limit.FrameTake{Limit: f.RequestsPerMinute, Want: 1 + random.IntN(64), Back: lease})
				case 4:
					if len(open) > 0 {
						i := random.IntN(len(open))
						p.settles(open[i], random.IntN(1200))
						open = append(open[:i], open[i+1:]...)
					}
				default:
					p.charges([]int{0, 7, 900, 1 << 31}[random.IntN(4)])
				}
			}
		})
	}
}

// clockStep returns a random step of the clock in seconds. Most steps are short and forward.
func clockStep(random *rand.Rand) int {
	switch random.IntN(60) {
	case 0:
		return 50 + random.IntN(30) // about the time after which counts leave the window
	case 1:
		return -random.IntN(60)
	case 2:
		return -60 - random.IntN(3)
	case 3:
		return 3600 * random.IntN(40)
	case 4:
		return -3600 * random.IntN(60)
	}
	return random.IntN(3)
}

// TestLimits_BurstAtMinuteBoundary_Refused sends 20 requests, the limit, in the last second of a minute. The next request must be
// refused until these requests have left the window.
func TestLimits_BurstAtMinuteBoundary_Refused(t *testing.T) {
	p := newPair(t, auth.Live)
	p.now = p.now/60*60 + 59
	admitted := func() (n int) {
		for range 40 {
			before := p.model.Requests.Used(p.now)
			p.admits(limit.TierLimits{RequestsPerMinute: 20}, "")
			n += p.model.Requests.Used(p.now) - before
		}
		return n
	}
	for _, c := range []struct{ after, want int }{{0, 20}, {1, 0}, {59, 0}, {1, 20}, {60, 0}, {1, 20}} {
		p.now += limit.Second(c.after)
		if n := admitted(); n != c.want {
			t.Errorf("at %d: %d requests were admitted, want %d", p.now, n, c.want)
		}
	}
}

func TestAdmit_400ConcurrentRequests_300Admitted(t *testing.T) {
	first, second := newStore(t), newStore(t) // two nodes
	p := newKey(t, first, auth.Owner{Account: newAccount(), Mode: auth.Live})
	var admitted, refused atomic.Int64
	var work sync.WaitGroup
	for i := range 400 {
		work.Go(func() {
			d, err := admit(t, []*Store{first, second}[i%2], p)
			switch {
			case err == nil && d.Admitted():
				admitted.Add(1)
			case d.Refused == limit.ByRequests && d.RetryAfter >= 1 && d.RetryAfter <= 61:
				refused.Add(1)
			}
		})
	}
	work.Wait()
	if admitted.Load() != 300 || refused.Load() != 100 {
		t.Errorf("%d requests were admitted and %d refused, want 300 and 100", admitted.Load(), refused.Load())
	}
}

func TestAdmit_TestKeys101stRequestOfDay_Refused(t *testing.T) {
	s := newStore(t)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Test}
	keys := []auth.Principal{newKey(t, s, owner), newKey(t, s, owner)}
	for i := range 100 {
		if d, err := admit(t, s, keys[i%2]); err != nil || d.Limit != 100 || d.Remaining != 99-i {
			t.Fatalf("request %d: %+v, %v", i, d, err)
		}
	}
	d, err := admit(t, s, keys[0])
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	if err == nil || d.Refused != limit.ByDay || d.Reset != limit.SecondOf(midnight) {
		t.Errorf("request 101: %+v, %v; want a refusal until midnight", d, err)
	}
	if d, err = admit(t, s, newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})); err != nil || d.Remaining != 299 {
		t.Errorf("a live key of the same account: %+v, %v; want 299 remaining", d, err)
	}
}

func TestAdmit_KeyDoesNotWork_NotCounted(t *testing.T) {
	s := newStore(t)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Live}
	revoked, rotated, alive := newKey(t, s, owner), newKey(t, s, owner), newKey(t, s, owner)
	never, expired := alive, aKey(owner)
	never.KeyID = "key_0000000000000000"
	expired.ExpiresAt = time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	_, err := s.CreateKey(t.Context(), expired, "")
	must(t, err)
	must(t, s.RevokeKey(t.Context(), owner, revoked.KeyID, auth.CLI))
	dead := map[string]auth.Principal{
		"a revoked key": revoked, "an unknown key": never,
		"an expired key": {Account: owner.Account, Mode: owner.Mode, KeyID: expired.ID, Secret: expired.Secrets[0].Hash},
	}
	for range 2 {
		must(t, s.KeyAlive(t.Context(), rotated))
		_, err := admit(t, s, rotated)
		must(t, err)
		_, err = s.RotateKey(t.Context(), owner, rotated.KeyID, aKey(owner).Secrets[0].Hash, "svc_live_cd", auth.CLI)
		must(t, err)
	}
	dead["a secret two rotations old"] = rotated
	late := newKey(t, s, owner)
	_, err = s.RotateKey(t.Context(), owner, late.KeyID, aKey(owner).Secrets[0].Hash, "svc_live_cd", auth.CLI)
	must(t, err)
	past := time.Now().Add(-time.Second).UnixMilli() // the 24 hours of the previous secret are over
	must(t, s.db.HSet(t.Context(), keyKey(ownerTag(owner), late.KeyID), "until", past).Err())
	dead["a secret rotated 24 hours ago"] = late
	for what, p := range dead {
		_, err := admit(t, s, p)
		wantError(t, what, err, auth.ErrInvalidToken)
		wantError(t, what+": KeyAlive", s.KeyAlive(t.Context(), p), auth.ErrInvalidToken)
	}
	if d, err := admit(t, s, alive); err != nil || d.Remaining != 297 {
		t.Errorf("Admit of a key that works: %+v, %v; want 297 remaining", d, err)
	}
}

func TestAdmit_KeyFromConfiguration_Admitted(t *testing.T) {
	p := auth.Principal{Account: newAccount(), Mode: auth.Live, KeyID: "key_declared00000000"}
	if d, err := admit(t, newStore(t), p); err != nil || d.Remaining != 299 {
		t.Errorf("decision %+v, error %v; want 299 remaining", d, err)
	}
}

// TestReserveTokens_OverLimitOrKeyRevoked_Refused runs a script that reserves tokens: with a pending admission, with a decided
// admission, without an admission, and after the API key was revoked.
func TestReserveTokens_OverLimitOrKeyRevoked_Refused(t *testing.T) {
	s := newStore(t)
	turn := newTestScript("turn", "local taken, refused = reserve_tokens(tonumber(ARGV[1]))\nreturn {taken or false, refused or false}\n", reserves)
	p := newKey(t, s, auth.Owner{Account: newAccount(), Mode: auth.Live})
	a := &auth.Admission{Principal: p, Limits: smallFigures}
	reserve := func(tokens int) ([]any, error) {
		reply, err := s.run(auth.WithAdmission(t.Context(), a), turn, ownerTag(p.Owner()), nil, tokens)
		parts, _ := reply.([]any)
		return parts, err
	}
	for i := range 2 { // at the second call, the admission is already decided
		parts, err := reserve(6000)
		must(t, err)
		if d, ok := a.Decision(); !ok || d.Remaining != 299 {
			t.Errorf("the admission: %+v, %v", d, ok)
		}
		if refused := parts[1] != nil; refused != (i == 1) {
			t.Errorf("reservation %d: %v; only the second exceeds the limit", i+1, parts)
		}
	}
	parts, err := reserve(6000)
	must(t, err)
	refused, err := tokensRefused(a, parts[1])
	must(t, err)
	if d := refused.Decision; d.Refused != limit.ByTokens || d.Limit != 10_000 || d.Remaining != 4000 || d.RetryAfter < 1 {
		t.Errorf("the refusal: %+v", d)
	}
	reply, err := s.run(t.Context(), turn, ownerTag(p.Owner()), nil, 6000) // without an admission
	must(t, err)
	if fmt.Sprint(reply) != "[[0 0] <nil>]" {
		t.Errorf("without an admission: %v", reply)
	}
	must(t, s.RevokeKey(t.Context(), p.Owner(), p.KeyID, auth.CLI))
	_, err = reserve(1)
	wantError(t, "reservation after the key was revoked", err, auth.ErrInvalidToken)
}

// TestAdmission_MalformedResult_NotAdmitted passes results to decide that no script returns. None may admit the request.
func TestAdmission_MalformedResult_NotAdmitted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	doubles := strings.Repeat("\x00", 8)
	for _, reply := range []any{
		nil, "works", []any{}, []any{""}, []any{nil, int64(1)}, []any{int64(1), int64(1)}, []any{[]any{"works"}, int64(1)},
		[]any{doubles, int64(1)}, []any{strings.Repeat(doubles, 9), int64(1)}, []any{strings.Repeat(doubles, 3) + "x", int64(1)},
	} {
		a := &auth.Admission{Principal: auth.Principal{Account: newAccount(), Mode: auth.Live}, Limits: smallFigures}
		if _, err := s.decide(t.Context(), admitScript, a, reply); err == nil || !a.Pending() {
			t.Errorf("decide of %q: error %v, pending: %v", reply, err, a.Pending())
		}
	}
}
