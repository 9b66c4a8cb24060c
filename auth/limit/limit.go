package limit

// Kind identifies a limit. The zero value means none.
type Kind uint8

// The limits.
const (
	ByRequests Kind = iota + 1 // requests a minute, of an account and mode
	ByDay                      // requests a day, of an account's test keys
	ByTokens                   // tokens a minute, of an account and mode
	ByFailures                 // failed authentications a minute, of an address
)

// String returns the unit of the limit, to follow a number: "60 requests a minute".
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

// Status is the state of one limit for one request.
type Status struct {
	By    Kind
	Limit int
	Used  int    // may exceed Limit after an overshoot
	Reset Second // when the oldest bucket leaves the window, or the day ends
	Wait  int    // whole seconds until the request fits; 0 if it fits now
}

// Decision says whether a request is admitted, and holds the figures for its response. Pass it by pointer: withdrawing
// both a decision and its copy would give everything back twice.
type Decision struct {
	Refused    Kind   // the limit that refuses; 0 if the request is admitted
	Limit      int    // X-RateLimit-Limit
	Remaining  int    // X-RateLimit-Remaining; at least 0
	Reset      Second // X-RateLimit-Reset
	RetryAfter int    // Retry-After and retryAfter, in whole seconds: at least 1 if refused, else 0

	// Reservation holds the tokens that were reserved. Settle it once, when the reply ends.
	Reservation Reservation

	request Reservation // counts the request itself, for Withdraw
	day     Day         // the day after it counted the request, for Withdraw; zero if it did not
}

// Admitted reports whether no limit refuses.
func (d *Decision) Admitted() bool { return d.Refused == 0 }

// Decide combines the states of several limits; the first must be requests a minute. Among the limits that refuse, it
// picks the one with the longest wait. A client that waits that long is admitted, unless other requests come first. If no
// limit refuses, it picks requests a minute, or the day if less is left there. It changes nothing, so a store that counts
// elsewhere can also use it.
func Decide(states ...Status) Decision {
	if len(states) == 0 {
		return Decision{}
	}
	shown, refused := states[0], Kind(0)
	for _, s := range states {
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

// Request is what one request needs from the limits of its account.
type Request struct {
	Limits TierLimits // of the account's tier
	Test   bool       // made with a test key, so it also counts in the day
	Tokens int        // the number to reserve: prompt and reply room; 0 if no model is called
}

// Counters are the counts of one account and mode. They take 544 bytes without pointers. The zero value is empty. They
// are not safe for concurrent use: even reading moves their clocks.
type Counters struct {
	Requests Window
	Tokens   Window
	Day      Day // the store must restore it after a restart
}

// Check returns the decision that Admit would make, with the figures before the request. It counts nothing.
func (c *Counters) Check(now Second, r Request) Decision {
	return c.decide(now, r, 1)
}

// Admit counts the request in its minute, counts it in its day if a test key made it, and reserves its tokens. If any
// limit refuses, it does none of this. Call it after every other check, and withdraw the decision if the request has no
// effect after all.
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

// Withdraw undoes Admit if the store could not commit the request. It empties the decision: after that, another Withdraw
// or settling its Reservation has no effect. A refusal has nothing to withdraw.
func (c *Counters) Withdraw(now Second, d *Decision) {
	c.Requests.Release(now, &d.request)
	c.Tokens.Release(now, &d.Reservation)
	if d.day.Count > 0 {
		c.Day.giveBack(d.day.Number)
	}
	d.day = Day{}
}

// Idle reports whether both windows are empty, so that the counters may be dropped from memory. The day does not matter:
// the store keeps its count.
func (c *Counters) Idle(now Second) bool {
	return c.Requests.Used(now) == 0 && c.Tokens.Used(now) == 0
}

// decide combines the limits for the given number of requests and for r.Tokens.
func (c *Counters) decide(now Second, r Request, requests int) Decision {
	var states [3]Status
	states[0] = c.Requests.status(now, ByRequests, requests, r.Limits.RequestsPerMinute)
	n := 1
	if r.Test {
		states[n] = Status{ByDay, TestKeyRequestsPerDay, c.Day.Used(now), c.Day.Reset(now), 0}
		if requests > 0 {
			states[n].Wait = c.Day.Wait(now, TestKeyRequestsPerDay)
		}
		n++
	}
	if limit := r.Limits.TokensPerMinute; r.Tokens > 0 {
		states[n] = c.Tokens.status(now, ByTokens, capped(r.Tokens, limit), limit)
		n++
	}
	return Decide(states[:n]...)
}

// status returns the state of a window for a request of n. If n exceeds the limit, it never fits. Wait is then 61 s,
// because the limit may have changed by then.
func (w *Window) status(now Second, by Kind, n, limit int) Status {
	wait, ok := w.Wait(now, n, limit)
	if !ok {
		wait = span
	}
	return Status{by, limit, w.Used(now), w.Reset(now), wait}
}

// CheckTokens returns the decision of the limit of tokens a minute on a reservation of tokens, and ignores the other
// limits. It reserves nothing.
func (c *Counters) CheckTokens(now Second, limits TierLimits, tokens int) Decision {
	limit := limits.TokensPerMinute
	return Decide(c.Tokens.status(now, ByTokens, capped(tokens, limit), limit))
}
