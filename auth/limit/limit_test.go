package limit

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// limitsOf returns the default limits of a tier.
func limitsOf(tier Tier) TierLimits {
	tiers := DefaultTiers()
	figures, _ := tiers.Limits(tier)
	return figures
}

func TestAdmit_Concurrent_AdmitsExactlyTheLimit(t *testing.T) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var c Counters
	admitted, remaining := 0, map[int]bool{}
	for i := range 400 {
		all.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			// Half of the callers have read the clock one second earlier.
			if d := c.Admit(noon-Second(i%2), Request{Limits: limitsOf(Pro)}); d.Admitted() {
				admitted++
				remaining[d.Remaining] = true
			} else if d.Refused != ByRequests || d.Limit != 300 || d.Remaining != 0 || d.RetryAfter < 60 {
				t.Errorf("the refusal is %+v, want requests a minute with the limit 300 and 0 remaining", d)
			}
		})
	}
	all.Wait()
	equal(t, "the number of admitted requests", admitted, 300)
	equal(t, "the number of different Remaining values", len(remaining), 300)
}

func TestAdmit_DecisionHasFiguresOfOneLimit(t *testing.T) {
	midnight := noon - noon%day + day
	for _, c := range []struct {
		name           string
		requests, days int // the counts before the request
		tokens         int
		ask            Request
		want           Decision
	}{
		{name: "admitted, requests a minute shown", requests: 10,
			ask:  Request{Limits: limitsOf(Free), Tokens: 500},
			want: Decision{Limit: 60, Remaining: 49, Reset: noon + 61, Reservation: Reservation{noon, 500}}},
		{name: "the day has more left, requests a minute shown", requests: 50,
			ask:  Request{Limits: limitsOf(Free), Test: true},
			want: Decision{Limit: 60, Remaining: 9, Reset: noon + 61}},
		{name: "the day has less left, day shown", days: 50,
			ask:  Request{Limits: limitsOf(Free), Test: true},
			want: Decision{Limit: 100, Remaining: 49, Reset: midnight}},
		{name: "the same left in both, requests a minute shown", requests: 10, days: 50,
			ask:  Request{Limits: limitsOf(Free), Test: true},
			want: Decision{Limit: 60, Remaining: 49, Reset: noon + 61}},
		{name: "live key, day not shown", days: 100,
			ask:  Request{Limits: limitsOf(Free)},
			want: Decision{Limit: 60, Remaining: 59, Reset: noon + 61}},
		{name: "requests a minute refuse", requests: 60,
			ask:  Request{Limits: limitsOf(Free), Tokens: 500},
			want: Decision{Refused: ByRequests, Limit: 60, Reset: noon + 61, RetryAfter: 61}},
		{name: "the day refuses", days: 100,
			ask:  Request{Limits: limitsOf(Pro), Test: true, Tokens: 500},
			want: Decision{Refused: ByDay, Limit: 100, Reset: midnight, RetryAfter: int(midnight - noon)}},
		{name: "tokens refuse, remaining tokens shown", tokens: 9_700,
			ask:  Request{Limits: limitsOf(Free), Tokens: 301},
			want: Decision{Refused: ByTokens, Limit: 10_000, Remaining: 300, Reset: noon + 61, RetryAfter: 61}},
		{name: "usage over the limit, remaining is 0", tokens: 12_000,
			ask:  Request{Limits: limitsOf(Free), Tokens: 1},
			want: Decision{Refused: ByTokens, Limit: 10_000, Reset: noon + 61, RetryAfter: 61}},
		{name: "usage over the limit, request without tokens admitted", tokens: 12_000,
			ask:  Request{Limits: limitsOf(Free)},
			want: Decision{Limit: 60, Remaining: 59, Reset: noon + 61}},
		{name: "several refuse, longest wait shown", requests: 60, days: 100, tokens: 10_000,
			ask:  Request{Limits: limitsOf(Free), Test: true, Tokens: 1},
			want: Decision{Refused: ByDay, Limit: 100, Reset: midnight, RetryAfter: int(midnight - noon)}},
		{name: "equal waits, requests a minute shown", requests: 60, tokens: 10_000,
			ask:  Request{Limits: limitsOf(Free), Tokens: 1},
			want: Decision{Refused: ByRequests, Limit: 60, Reset: noon + 61, RetryAfter: 61}},
		{name: "more tokens than the limit, whole limit reserved",
			ask:  Request{Limits: limitsOf(Free), Tokens: 1_000_000},
			want: Decision{Limit: 60, Remaining: 59, Reset: noon + 61, Reservation: Reservation{noon, 10_000}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := Counters{Day: Day{Number: int64(noon / day), Count: c.days}}
			k.Requests.Charge(noon, c.requests)
			k.Tokens.Charge(noon, c.tokens)
			before := k
			checked := k.Check(noon, c.ask)
			equal(t, "the counters after Check", k, before)
			got := k.Admit(noon, c.ask)
			equal(t, "the limit that refuses in Check", checked.Refused, got.Refused)
			if !got.Admitted() {
				equal(t, "the decision of Check", checked, got)
				equal(t, "the counters after a refusal", k, before)
			}
			if c.want.Refused != 0 {
				c.want.RefusedLimit = c.want.Limit
			}
			equal(t, "the decision of Admit", got, c.want)
		})
	}
}

// TestAdmit_RandomRequests_MatchReferenceLedger makes random requests. A refusal must count nothing. A refused request must be
// admitted after RetryAfter, and not earlier.
func TestAdmit_RandomRequests_MatchReferenceLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		figures := TierLimits{
			RequestsPerMinute: rapid.IntRange(1, 150).Draw(t, "requests"), TokensPerMinute: rapid.IntRange(1, 1_000).Draw(t, "tokens"),
		}
		test := rapid.Bool().Draw(t, "test")
		var c Counters
		var requests, tokens ledger
		now := noon
		daily, today := 0, now/day
		for range rapid.IntRange(1, 150).Draw(t, "requests made") {
			now += Second(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 7, 59, 60, 61, 20_000}).Draw(t, "step"))
			if now/day != today {
				daily, today = 0, now/day
			}
			ask := Request{Limits: figures, Test: test, Tokens: rapid.IntRange(0, 1_500).Draw(t, "n")}
			reserve := min(ask.Tokens, figures.TokensPerMinute)
			fits := requests.used(requests.tick(now)) < figures.RequestsPerMinute && (!test || daily < 100) &&
				(reserve == 0 || tokens.used(tokens.tick(now))+reserve <= figures.TokensPerMinute)
			before := c
			d := c.Admit(now, ask)
			equal(t, "the request is admitted", d.Admitted(), fits)
			switch {
			case !fits:
				waited := before
				if w := waited.Admit(now+Second(d.RetryAfter)-1, ask); d.RetryAfter < 1 || w.Admitted() {
					t.Fatalf("RetryAfter is %d s, but the request would be admitted 1 s earlier", d.RetryAfter)
				}
				if w := waited.Admit(now+Second(d.RetryAfter), ask); !w.Admitted() {
					t.Fatalf("after RetryAfter (%d s), the request was refused again: %+v", d.RetryAfter, w)
				}
			default:
				daily++
				requests.add(1)
				tokens.add(reserve)
			}
			equal(t, "the requests in the window", c.Requests.Used(now), requests.used(requests.tick(now)))
			equal(t, "the tokens in the window", c.Tokens.Used(now), tokens.used(tokens.tick(now)))
			if test {
				equal(t, "the count of the day", c.Day.Used(now), daily)
			} else {
				equal(t, "the day without test keys", c.Day, Day{})
			}
			equal(t, "the counters are idle", c.Idle(now), requests.used(now) == 0 && tokens.used(now) == 0)
		}
	})
}

func TestAdmit_ZeroLimit_Refused(t *testing.T) {
	var c Counters
	d := c.Admit(noon, Request{Tokens: 1})
	equal(t, "the limit that refuses, if all limits are 0", d.Refused, ByRequests)
	d = c.Admit(noon, Request{Limits: TierLimits{RequestsPerMinute: 1}, Tokens: 1})
	equal(t, "the limit that refuses, if the limit of tokens is 0", d.Refused, ByTokens)
	equal(t, "RetryAfter", d.RetryAfter, 61)
	equal(t, "the decision without states", Decide(), Decision{})
}

func TestDecide_RefusalAndNearlyFullDay_ShowsRefusal(t *testing.T) {
	tokens := Status{By: ByTokens, Limit: 100, Used: 50, Reset: noon + 9, Wait: 9}
	requests, daily := Status{By: ByRequests, Limit: 60}, Status{By: ByDay, Limit: 100, Used: 99}
	want := Decision{Refused: ByTokens, RefusedLimit: 100, Limit: 100, Remaining: 50, Reset: noon + 9, RetryAfter: 9}
	equal(t, "the decision with ByDay before ByTokens", Decide(requests, daily, tokens), want)
	equal(t, "the decision with ByDay after ByTokens", Decide(requests, tokens, daily), want)
}

func TestIdle_TrueOnlyIfBothWindowsAreEmpty(t *testing.T) {
	var c Counters
	equal(t, "idle at the beginning", c.Idle(noon), true)
	c.Tokens.Charge(noon, 1)
	equal(t, "idle with a token", c.Idle(noon+60), false)
	c.Requests.Charge(noon+60, 1)
	equal(t, "idle with a request", c.Idle(noon+61), false)
	equal(t, "idle a minute later", c.Idle(noon+121), true)
}

func TestKind_String_NamesUnit(t *testing.T) {
	for kind, want := range map[Kind]string{
		ByRequests: "requests a minute", ByDay: "requests a day", ByTokens: "tokens a minute",
		ByFailures: "failed authentications a minute", 0: "none",
	} {
		equal(t, "the unit", kind.String(), want)
	}
}
