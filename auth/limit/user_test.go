package limit

import "testing"

// ofUsers are limits that limit a user to less than the account.
var ofUsers = TierLimits{RequestsPerMinute: 10, TokensPerMinute: 1_000, UserRequestsPerMinute: 3, UserTokensPerMinute: 400}

func TestAdmit_UserAtLimit_OnlyThatUserRefused(t *testing.T) {
	var c Counters
	var greedy, other User
	for range 3 {
		d := c.Admit(noon, Request{Limits: ofUsers, User: &greedy})
		equal(t, "a request within the limit is admitted", d.Admitted(), true)
	}
	got := c.Admit(noon+5, Request{Limits: ofUsers, User: &greedy})
	equal(t, "the fourth request of a user", got,
		Decision{Refused: ByUserRequests, RefusedLimit: 3, RetryAfter: 56, Limit: 10, Remaining: 7, Reset: noon + 61})
	equal(t, "the account's requests after the refusal", c.Requests.Used(noon+5), 3)
	d := c.Admit(noon+5, Request{Limits: ofUsers, User: &other})
	equal(t, "another user's request is admitted", d.Admitted(), true)
	d = c.Admit(noon+5, Request{Limits: ofUsers})
	equal(t, "a request without a user is admitted", d.Admitted(), true)
	equal(t, "the account's remaining requests", d.Remaining, 5)
	d = c.Admit(noon+61, Request{Limits: ofUsers, User: &greedy})
	equal(t, "a request of the first user after the window is admitted", d.Admitted(), true)
}

func TestAdmit_UserLimitNotLower_UserNotCounted(t *testing.T) {
	for _, most := range []int{0, 10, 11} {
		var c Counters
		var u User
		limits := ofUsers
		limits.UserRequestsPerMinute, limits.UserTokensPerMinute = most, most*100
		for range 10 {
			d := c.Admit(noon, Request{Limits: limits, User: &u})
			equal(t, "a request within the account's limit is admitted", d.Admitted(), true)
		}
		_, refused := c.ReserveTokens(noon, limits, &u, 500)
		equal(t, "the wait of a reservation", refused.Wait, 0)
		equal(t, "the counts of the user", u, User{})
		equal(t, "the limits limit users", limits.LimitsUsers(), false)
	}
}

func TestReserveTokens_OneWindowFull_NothingReserved(t *testing.T) {
	var c Counters
	var u, other User
	held, refused := c.ReserveTokens(noon, ofUsers, &u, 700) // capped at the user's limit
	equal(t, "the wait of the first reservation", refused.Wait, 0)
	equal(t, "the user's tokens", u.Tokens.Used(noon), 400)
	equal(t, "the account's tokens", c.Tokens.Used(noon), 700)
	_, refused = c.ReserveTokens(noon+1, ofUsers, &u, 100)
	equal(t, "the refusal by the user's limit", refused, Status{ByUserTokens, 400, 400, noon + 61, 60})
	_, refused = c.ReserveTokens(noon+1, ofUsers, &other, 400)
	equal(t, "the refusal by the account's limit", refused, Status{ByTokens, 1_000, 700, noon + 61, 60})
	equal(t, "the tokens of the other user", other.Tokens.Used(noon+1), 0)
	c.SettleTokens(noon+1, &u, &held, 50)
	equal(t, "the user's tokens after the turn", u.Tokens.Used(noon+1), 50)
	equal(t, "the account's tokens after the turn", c.Tokens.Used(noon+1), 50)
	equal(t, "the user is idle", u.Idle(noon+1), false)
	equal(t, "the user is idle after a minute", u.Idle(noon+61), true)
}

func TestRefuseTokens_UserLimit_HeadersShowAccount(t *testing.T) {
	admitted := Decision{Limit: 60, Remaining: 59, Reset: noon + 61}
	equal(t, "a refusal by the user's limit", admitted.RefuseTokens(Status{ByUserTokens, 400, 400, noon + 9, 9}),
		Decision{Refused: ByUserTokens, RefusedLimit: 400, RetryAfter: 9, Limit: 60, Remaining: 59, Reset: noon + 61})
	equal(t, "a refusal by the account's limit", admitted.RefuseTokens(Status{ByTokens, 1_000, 700, noon + 9, 9}),
		Decision{Refused: ByTokens, RefusedLimit: 1_000, RetryAfter: 9, Limit: 1_000, Remaining: 300, Reset: noon + 9})
}
