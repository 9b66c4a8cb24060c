package server_test

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"time"
)

// check calls both analytics endpoints on a node for an owner. It compares the figures with the recorded events.
func (r *recount) check(n *recountNode, o *recountOwner, start, end time.Time, unit string) {
	now := r.now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	sum, active := r.count(o, month, month.AddDate(0, 1, 0)), float64(o.active(now))
	// The request to /analytics/usage counts too.
	requests, tokens := float64(sum.kinds["request"]+1), float64(sum.prompt+sum.completion)
	if status, got := r.call(n, o, "GET", "/analytics/usage", nil); status == 200 {
		quotas := got["quotas"].(map[string]any)
		delete(got, "quotas")
		delete(quotas, "storedBytes") // the tests of the stores check it
		delete(quotas, "sockets")
		r.same("quotas", quotas, map[string]any{
			"keys.used": 1.0, "keys.limit": 1000.0, "keys.percentage": 0.1,
			"activeSessions.used": active, "activeSessions.limit": 7.0, "activeSessions.percentage": 100 * active / 7,
		})
		r.same("usage", got, map[string]any{
			"billingPeriod.start": iso(month), "billingPeriod.end": iso(month.AddDate(0, 1, 0)), "tier": "pro",
			"requests.used": requests, "requests.limit": 700.0, "requests.percentage": 100 * requests / 700,
			"tokens.used": tokens, "tokens.limit": 9000.0, "tokens.percentage": 100 * tokens / 9000,
			"sessions.active": active, "sessions.limit": 7.0, "sessions.percentage": 100 * active / 7,
		})
	}
	query := url.Values{"startDate": {start.Format(time.RFC3339Nano)}, "endDate": {end.Format(time.RFC3339Nano)}, "granularity": {unit}}
	status, got := r.call(n, o, "GET", "/analytics/metrics?"+query.Encode(), nil)
	if status == 429 {
		return
	}
	series, _ := got["series"].([]any)
	delete(got, "series")
	from, to := start.Truncate(time.Hour), end.Add(time.Hour-1).Truncate(time.Hour)
	want := r.figures(o, from, to)
	want["period.start"], want["period.end"], want["period.granularity"] = iso(start), iso(end), unit
	r.same("metrics", got, want)
	for from.Before(to) {
		until := from
		for until.Before(to) && sameUnit(unit, from, until) {
			until = until.Add(time.Hour)
		}
		if len(series) == 0 {
			r.t.Fatalf("the series ends before %v", from)
		}
		want := r.figures(o, from, until)
		want["start"], want["end"] = iso(from), iso(until)
		r.same("an entry of the series", series[0].(map[string]any), want)
		series, from = series[1:], until
	}
	if len(series) > 0 {
		r.t.Errorf("the series has further entries: %v", series)
	}
}

func sameUnit(unit string, a, b time.Time) bool {
	year, week := a.ISOWeek()
	yearOfB, weekOfB := b.ISOWeek()
	return map[string]bool{
		"hour": a.Equal(b), "day": a.YearDay() == b.YearDay(), "month": a.Month() == b.Month(),
		"week": year == yearOfB && week == weekOfB,
	}[unit]
}

func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// active returns the number of the owner's sessions that exist.
func (o *recountOwner) active(now time.Time) (n int) {
	for _, s := range o.sessions {
		if s.exists(now) {
			n++
		}
	}
	return n
}

func (s *recountSession) exists(now time.Time) bool {
	return !s.deleted && now.Before(s.created.Add(24*time.Hour))
}

// counted holds sums over the events of a period.
type counted struct {
	kinds              map[string]int
	prompt, completion int
	first              []int64 // times to the first token in milliseconds, ascending
}

func (r *recount) count(o *recountOwner, from, to time.Time) counted {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := counted{kinds: make(map[string]int)}
	for _, e := range r.events {
		if e.owner != o.name || e.at.Before(from) || !e.at.Before(to) {
			continue
		}
		c.kinds[e.kind]++
		c.prompt += e.prompt
		c.completion += e.completion
		if e.first > 0 {
			c.first = append(c.first, int64((e.first+time.Millisecond-1)/time.Millisecond))
		}
	}
	slices.Sort(c.first)
	return c
}

// figures returns the figures that GET /v1/analytics/metrics must report for a period.
func (r *recount) figures(o *recountOwner, from, to time.Time) map[string]any {
	sessions, active, lasted := 0.0, 0.0, time.Duration(0)
	for _, s := range o.sessions {
		if s.created.Before(from) || !s.created.Before(to) {
			continue
		}
		sessions++
		lasted += s.last.Sub(s.created)
		if s.exists(r.now()) {
			active++
		}
	}
	over := func(sum, n float64) float64 {
		if n == 0 {
			return 0
		}
		return sum / n
	}
	c := r.count(o, from, to)
	of := func(kind string) float64 { return float64(c.kinds[kind]) }
	replies := of("user") + of("system")
	messages, tokens := of("user")+of("system")+replies, float64(c.prompt+c.completion)
	return map[string]any{
		"sessions.total": sessions, "sessions.active": active,
		"sessions.averageDuration": over(float64(lasted.Milliseconds()), 1000*sessions),
		"messages.total":           messages, "messages.averagePerSession": over(messages, sessions),
		"messages.userMessages": of("user"), "messages.assistantMessages": replies,
		"tokens.total": tokens, "tokens.prompt": float64(c.prompt), "tokens.completion": float64(c.completion),
		"tokens.averagePerMessage": over(tokens, messages),
		"replies.completed":        of("completed"), "replies.cancelled": of("cancelled"),
		"replies.failed": of("failed"), "replies.interrupted": of("interrupted"),
		"firstToken.p50": percentileOf(c.first, 50), "firstToken.p95": percentileOf(c.first, 95),
	}
}

// approximate is a figure with a tolerance: a response may differ from the figure by less than 1/16.
type approximate int64

func percentileOf(sorted []int64, p int) any {
	if len(sorted) == 0 {
		return nil
	}
	return approximate(sorted[max(1, (len(sorted)*p+99)/100)-1])
}

// same checks that got has exactly the figures in want. An approximate figure may differ slightly.
func (r *recount) same(what string, got, want map[string]any) {
	r.t.Helper()
	flat := make(map[string]any)
	for name, value := range got {
		if object, ok := value.(map[string]any); ok {
			for inner, value := range object {
				flat[name+"."+inner] = value
			}
		} else {
			flat[name] = value
		}
	}
	if names, wanted := slices.Sorted(maps.Keys(flat)), slices.Sorted(maps.Keys(want)); !slices.Equal(names, wanted) {
		r.t.Fatalf("%s has %q, want %q", what, names, wanted)
	}
	for name, value := range want {
		have := flat[name]
		if near, ok := value.(approximate); ok {
			number, _ := have.(float64)
			if off := math.Abs(number - float64(near)); off > 0 && 16*off >= float64(near) {
				r.t.Errorf("%s: %s is %v, want about %v", what, name, have, near)
			}
		} else if have != value {
			r.t.Errorf("%s: %s is %v, want %v", what, name, have, value)
		}
	}
}
