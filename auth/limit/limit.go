package limit

// Kind identifies a limit. The zero value means no limit.
type Kind uint8

// The limits.
const (
	ByRequests     Kind = iota + 1 // requests a minute, for an owner
	ByDay                          // requests a day, for all test keys of an account
	ByTokens                       // tokens a minute, for an owner
	ByFailures                     // failed authentications a minute, for an address
	ByUserRequests                 // requests a minute, for a user of an owner
	ByUserTokens                   // tokens a minute, for a user of an owner
	ByFrames                       // frames a minute that clients send on WebSockets, for an API key
)

// kinds holds the texts of each Kind.
var kinds = [...]struct{ name, unit string }{
	0:          {"none", "none"},
	ByRequests: {"requestsPerMinute", "requests a minute"},
	ByDay:      {"requestsPerDay", "requests a day"},
	ByTokens:   {"tokensPerMinute", "tokens a minute"},
	ByFailures: {"failedAuthenticationsPerMinute", "failed authentications a minute"},

	ByUserRequests: {"userRequestsPerMinute", "requests a minute for each user"},
	ByUserTokens:   {"userTokensPerMinute", "tokens a minute for each user"},
	ByFrames:       {"framesPerMinute", "frames a minute"},
}

// String returns the unit of the limit. Callers write it after a number, as in "60 requests a minute".
func (k Kind) String() string { return kinds[k].unit }

// ofUser reports whether the limit is one of a user.
func (k Kind) ofUser() bool { return k == ByUserRequests || k == ByUserTokens }

// Name returns the name of the limit in the errors that callers get. A limit of a tier has the same name in PARLEY_TIERS.
func (k Kind) Name() string { return kinds[k].name }

// Status is the state of one limit for one request.
type Status struct {
	By    Kind
	Limit int
	Used  int    // greater than Limit if a turn has used more tokens than it had reserved
	Reset Second // the time at which the oldest bucket leaves the window, or the day ends
	Wait  int    // number of seconds until the request fits; 0 if it fits now
}

// Decision is the decision about a request: admitted or refused. It holds the figures for the response.
type Decision struct {
	Refused    Kind   // the limit that refuses the request; 0 if the request is admitted
	Limit      int    // the value of X-RateLimit-Limit
	Remaining  int    // the value of X-RateLimit-Remaining; at least 0
	Reset      Second // the value of X-RateLimit-Reset
	RetryAfter int    // the value of Retry-After and retryAfter, in seconds; 0 if the request is admitted, else at least 1

	// RefusedLimit is the number that the limit Refused allows; 0 if the request is admitted. Limit differs from it if a limit
	// of a user refuses the request, because the X-RateLimit headers always show the owner.
	RefusedLimit int

	// Reservation holds the tokens that the request has reserved. Settle it once, when the reply ends.
	Reservation Reservation
}

// Admitted reports whether the request is admitted.
func (d *Decision) Admitted() bool { return d.Refused == 0 }

// Decide combines the states of several limits into one decision, which has the figures of one limit. If limits refuse the
// request, Decide chooses the limit with the longest wait. After that wait, a retry is admitted unless other requests were
// admitted before. If no limit refuses, Decide chooses the first state. But it chooses requests a day if that limit has fewer
// requests left. A user's limit can refuse the request, but Decide never chooses the figures of that limit. The first state
// must not be that of a user's limit. Decide needs no Counters, so a store that counts in another way can also use it.
func Decide(states ...Status) Decision {
	if len(states) == 0 {
		return Decision{}
	}
	shown, longest := states[0], states[0]
	for _, s := range states {
		if s.Wait > longest.Wait {
			longest = s
		}
		switch {
		case s.By.ofUser():
		case s.Wait > shown.Wait:
			shown = s
		case shown.Wait == 0 && s.By == ByDay && s.remaining() < shown.remaining():
			shown = s
		}
	}
	d := Decision{Limit: shown.Limit, Remaining: shown.remaining(), Reset: shown.Reset}
	d.refuse(longest)
	return d
}

// RefuseTokens returns the decision about a turn that a limit of tokens refuses. s is the state of that limit, and d the
// decision that has admitted the request. If the limit is one of a user, the result has the figures of d.
func (d Decision) RefuseTokens(s Status) Decision {
	if !s.By.ofUser() {
		return Decide(s)
	}
	refused := Decision{Limit: d.Limit, Remaining: d.Remaining, Reset: d.Reset}
	refused.refuse(s)
	return refused
}

// refuse makes d a refusal by the limit of s, unless s.Wait is 0.
func (d *Decision) refuse(s Status) {
	if s.Wait > 0 {
		d.Refused, d.RefusedLimit, d.RetryAfter = s.By, s.Limit, s.Wait
	}
}

func (s Status) remaining() int { return max(0, s.Limit-s.Used) }

// Request describes one request for a decision of the limits.
type Request struct {
	Limits TierLimits // the limits of the account's tier
	Test   bool       // a test key made the request, so the request also counts in the day
	Tokens int        // the number of tokens to reserve in the owner's window, for prompt and reply room; 0 to reserve none
	User   *User      // the counts of the user for whom the request counts; nil for none
}

// Counters are the counts of one owner. They take 544 bytes without pointers. The zero value is empty. Counters are not
// safe for concurrent use: even Check moves the clocks of the windows.
type Counters struct {
	Requests Window
	Tokens   Window
	Day      Day // the store must restore the Day after a restart
}

// Check returns the decision that Admit would make now. Its figures do not include the request. Check counts nothing.
func (c *Counters) Check(now Second, r Request) Decision {
	return c.decide(now, r, 1)
}

// Admit counts the request, and reserves its tokens. A request with a test key also counts in the day. If any limit refuses
// the request, Admit counts and reserves nothing.
func (c *Counters) Admit(now Second, r Request) Decision {
	if d := c.Check(now, r); !d.Admitted() {
		return d
	}
	c.Requests.Reserve(now, 1, r.Limits.RequestsPerMinute)
	if most := r.userLimit(); most > 0 {
		r.User.Requests.Take(now, 1, most)
	}
	tokens, _ := c.Tokens.Reserve(now, r.Tokens, r.Limits.TokensPerMinute)
	if r.Test {
		c.Day.Take(now, TestKeyRequestsPerDay)
	}
	d := c.decide(now, Request{Limits: r.Limits, Test: r.Test}, 0)
	d.Reservation = tokens
	return d
}

// Idle reports whether both windows are empty. The store may then drop the counters from memory, because it has stored the
// Day.
func (c *Counters) Idle(now Second) bool {
	return c.Requests.Used(now) == 0 && c.Tokens.Used(now) == 0
}

// decide returns the decision about a number of further requests (0 or 1) and r.Tokens further tokens. It counts nothing.
func (c *Counters) decide(now Second, r Request, requests int) Decision {
	var states [4]Status
	states[0] = c.Requests.status(now, ByRequests, requests, r.Limits.RequestsPerMinute)
	n := 1
	if most := r.userLimit(); most > 0 {
		states[n] = r.User.Requests.status(now, ByUserRequests, requests, most)
		n++
	}
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

// status returns the state of a window for an amount n. If n is greater than the limit, n never fits. Wait is then 61 s,
// because the limit may change.
func (w *Window) status(now Second, by Kind, n, limit int) Status {
	wait, ok := w.Wait(now, n, limit)
	if !ok {
		wait = span
	}
	return Status{by, limit, w.Used(now), w.Reset(now), wait}
}
