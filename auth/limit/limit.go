// Package limit is the arithmetic of the rate limits (spec: Limits; design section 6): requests and tokens a minute
// in rolling windows, a day's requests of test keys, failed authentication by address, and the figures of the tiers.
//
// It is pure: time is an argument, and nothing here locks, blocks, or allocates once it is made. Whoever keeps a
// value serialises its use.
package limit

// Kind is one of the limits. The zero value is none of them.
type Kind uint8

// The limits.
const (
	ByRequests Kind = iota + 1 // requests a minute, of an account and mode
	ByDay                      // requests a day, of an account's test keys
	ByTokens                   // tokens a minute, of an account and mode
	ByFailures                 // failed authentications a minute, of an address
)

// String says what is limited, as it follows a number: "60 requests a minute".
func (k Kind) String() string {
	switch k {
	case ByRequests:
		return "requests a minute"
	case ByDay:
		return "requests a day"
	case ByTokens:
		return "tokens a minute"
	case ByFailures:
		return "failed authentications a minute"
	}
	return "none"
}

// Standing is how a limit stands towards something that is asked of it.
type Status struct {
	By    Kind
	Limit int
	Used  int    // over Limit where more was charged than was reserved
	Reset Second // when there begins to be more room
	Wait  int    // for how many whole seconds what is asked does not fit; 0 if it fits
}

// Decision is whether a request is admitted, and the figures that its response shows. A copy of it must not be
// withdrawn as well.
type Decision struct {
	Refused    Kind   // the limit that refuses it; zero if it is admitted
	Limit      int    // X-RateLimit-Limit
	Remaining  int    // X-RateLimit-Remaining; at least 0
	Reset      Second // X-RateLimit-Reset
	RetryAfter int    // Retry-After and retryAfter: whole seconds, at least 1 if it is refused, otherwise 0

	// Reservation is of the tokens that were asked for, to be settled once when the reply ends.
	Reservation Reservation

	request Reservation // of one request
	day     Day         // as it was when the request was counted in it; zero if it was not
}

// Admitted reports whether no limit refuses.
func (d *Decision) Admitted() bool { return d.Refused == 0 }

// Decide tells from how the limits stand, those of requests a minute first, which of them refuses and whose figures
// are shown (design section 6). The one that refuses is, if there are several, the one with the longest wait, so that
// a client that has waited so long is let in, if it is alone. If none does, the figures are those of requests a
// minute, or those of the day when less is left there. It takes nothing; a store that counts elsewhere can use it
// too.
func Decide(standings ...Status) Decision {
	if len(standings) == 0 {
		return Decision{}
	}
	shown, refused := standings[0], Kind(0)
	for _, s := range standings {
		switch {
		case s.Wait > shown.Wait:
			shown = s
		case shown.Wait == 0 && s.By == ByDay && s.remaining() < shown.remaining():
			shown = s
		}
	}
	if shown.Wait > 0 {
		refused = shown.By
	}
	return Decision{
		Refused: refused, Limit: shown.Limit, Remaining: shown.remaining(), Reset: shown.Reset, RetryAfter: shown.Wait,
	}
}

func (s Status) remaining() int { return max(0, s.Limit-s.Used) }

// Request is what is asked of an account's limits.
type Request struct {
	Limits TierLimits // of the account's tier
	Test   bool       // with a test key: the day counts as well
	Tokens int        // to reserve: prompt and room for the reply; 0 if no model is called
}

// Counters are what is counted for one account and mode: 544 bytes, no pointers. The zero value is empty.
// They are not for concurrent use; asking changes them too.
type Counters struct {
	Requests Window
	Tokens   Window
	Day      Day // to be restored from the store after a restart
}

// Check says what Admit would, and takes nothing: the figures are those before the request.
func (c *Counters) Check(now Second, r Request) Decision {
	return c.decide(now, r, 1)
}

// Admit counts the request in its minute, and its day if it is made with a test key, and reserves its tokens: all of
// that or, if one limit refuses, none. It must come after every other check, or be withdrawn.
func (c *Counters) Admit(now Second, r Request) Decision {
	if d := c.Check(now, r); !d.Admitted() {
		return d
	}
	request, _ := c.Requests.Reserve(now, 1, r.Limits.RequestsPerMinute)
	tokens, _ := c.Tokens.Reserve(now, r.Tokens, r.Limits.TokensPerMinute)
	var counted Day
	if r.Test {
		c.Day.Take(now, TestKeyRequestsPerDay)
		counted = c.Day
	}
	d := c.decide(now, Request{Limits: r.Limits, Test: r.Test}, 0)
	d.Reservation, d.request, d.day = tokens, request, counted
	return d
}

// Withdraw undoes what Admit took, where the request has not taken effect after all (the store could not commit it).
// It empties what the decision holds, so that doing it again, or settling its Reservation, does nothing; it does
// nothing to a refusal.
func (c *Counters) Withdraw(now Second, d *Decision) {
	c.Requests.Release(now, &d.request)
	c.Tokens.Release(now, &d.Reservation)
	if d.day.Count > 0 {
		c.Day.giveBack(d.day.Number)
	}
	d.day = Day{}
}

// Idle reports whether nothing counts in either window, so that forgetting them changes nothing. The day is
// another matter: its count is the store's.
func (c *Counters) Idle(now Second) bool {
	return c.Requests.Used(now) == 0 && c.Tokens.Used(now) == 0
}

// decide tells how so many requests, and the tokens, stand.
func (c *Counters) decide(now Second, r Request, requests int) Decision {
	var standings [3]Status
	standings[0] = c.Requests.standing(now, ByRequests, requests, r.Limits.RequestsPerMinute)
	n := 1
	if r.Test {
		standings[n] = Status{ByDay, TestKeyRequestsPerDay, c.Day.Used(now), c.Day.Reset(now), 0}
		if requests > 0 {
			standings[n].Wait = c.Day.Wait(now, TestKeyRequestsPerDay)
		}
		n++
	}
	if limit := r.Limits.TokensPerMinute; r.Tokens > 0 {
		standings[n] = c.Tokens.standing(now, ByTokens, capped(r.Tokens, limit), limit)
		n++
	}
	return Decide(standings[:n]...)
}

// standing tells how a window stands towards n; if n never fits, the wait is a minute, which is as good as any.
func (w *Window) standing(now Second, by Kind, n, limit int) Status {
	wait, ok := w.Wait(now, n, limit)
	if !ok {
		wait = span
	}
	return Status{by, limit, w.Used(now), w.Reset(now), wait}
}

// CheckTokens says how the limit of tokens a minute alone stands towards a reservation, and takes nothing.
func (c *Counters) CheckTokens(now Second, figures TierLimits, tokens int) Decision {
	limit := figures.TokensPerMinute
	return Decide(c.Tokens.standing(now, ByTokens, capped(tokens, limit), limit))
}
