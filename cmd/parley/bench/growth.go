package bench

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"
)

// Growth is the result of a workload that is repeated while something grows.
type Growth struct {
	Dimension string  `json:"dimension"`
	What      string  `json:"what"` // the unit of the cost
	Points    []Point `json:"points"`
}

// Point is the cost at one size.
type Point struct {
	Size   int     `json:"size"`
	Cost   float64 `json:"microseconds"` // CPU time of the server, or without a process p50
	Report *Report `json:"report"`
}

// dimension is something that grows. prepare returns a function that makes it grow to a size and measures there.
type dimension struct {
	name    string
	what    string // what the cost is paid for
	first   int    // the smallest size
	perText bool   // the cost is that of a token at a viewer, not of a turn
	prepare func(g *growing) func(ctx context.Context, size int) (*Report, error)
}

// growing holds the options, the client and the sessions that all sizes of one dimension use.
type growing struct {
	options  Options
	client   *client
	sessions *sessionPool
}

// dimensions lists what can grow, in the order of the plots.
var dimensions = []dimension{
	{"sessions", "a JSON turn", 1000, false, (*growing).growSessions},
	{"messages", "a JSON turn in a session with so many messages", 250, false, (*growing).growMessages},
	{"viewers", "a token that reaches a viewer", 32, true, (*growing).growViewers},
	{"keys", "an authenticated request, with a random key", 64, false, (*growing).growKeys},
	{"hours", "a report of the usage in so many hours", 300, false, (*growing).growHours},
}

// Dimensions returns the names of what can grow.
func Dimensions() (names []string) {
	for _, d := range dimensions {
		names = append(names, d.name)
	}
	return names
}

// growthCallers is the number of callers at each size: enough to keep the server busy.
const growthCallers = 8

// growthReply is short, because the cost of text does not depend on what grows.
var growthReply = Reply{Tokens: 10}

// Grow doubles a dimension and measures at each size. first is the smallest size; 0 for the default.
func Grow(ctx context.Context, o Options, name string, first, doublings int) (*Growth, error) {
	var d *dimension
	for i := range dimensions {
		if dimensions[i].name == name {
			d = &dimensions[i]
		}
	}
	if d == nil {
		return nil, fmt.Errorf("unknown dimension %q", name)
	}
	c, err := newClient(o.Target)
	if err != nil {
		return nil, err
	}
	if first == 0 {
		first = d.first
	}
	base := &run{Options: o, client: c, sessions: &sessionPool{client: c}}
	defer base.close(ctx)
	at := d.prepare(&growing{o, c, base.sessions})
	g := &Growth{Dimension: d.name, What: d.what}
	for i := range doublings + 1 {
		size := first << i
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "growth: %d %s\n", size, d.name)
		}
		report, err := at(ctx, size)
		if err != nil {
			return g, err
		}
		g.Points = append(g.Points, Point{size, d.cost(report), report})
	}
	return g, nil
}

// cost returns the cost that a report shows, in microseconds.
func (d *dimension) cost(r *Report) float64 {
	switch {
	case r.Server == nil && r.Turn != nil:
		return 1000 * r.Turn.P50
	case r.Server == nil:
		return 0
	case d.perText:
		return r.Server.CPUPerToken
	}
	return r.Server.CPUPerTurn
}

// Err returns the error of the first report that must not be used.
func (g *Growth) Err() error {
	for _, p := range g.Points {
		if err := p.Report.Err(); err != nil {
			return fmt.Errorf("%d %s: %w", p.Size, g.Dimension, err)
		}
	}
	return nil
}

// measure runs callers at one size.
func (g *growing) measure(ctx context.Context, callers int, do func(r *run) turn) (*Report, error) {
	o := g.options
	o.Keep = true // Grow deletes them at the end
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	r.sessions = g.sessions
	report, err := r.drive(ctx, "growth", callers, 0, do(r))
	return report.with(callers, growthReply, ""), err
}

func requests(r *run) turn {
	return func(ctx context.Context) error { return r.request(ctx, growthReply) }
}

func (g *growing) growSessions() func(ctx context.Context, size int) (*Report, error) {
	return func(ctx context.Context, size int) (*Report, error) {
		if err := g.sessions.fill(ctx, size-len(g.sessions.all)); err != nil {
			return nil, err
		}
		return g.measure(ctx, growthCallers, requests)
	}
}

// growMessages uses few sessions, because their messages are made by turns.
func (g *growing) growMessages() func(ctx context.Context, size int) (*Report, error) {
	const sessions = 2
	messages := 0
	return func(ctx context.Context, size int) (*Report, error) {
		if err := g.sessions.fill(ctx, sessions-len(g.sessions.all)); err != nil {
			return nil, err
		}
		r := &run{Options: g.options, client: g.client}
		err := inParallel(ctx, sessions, func(ctx context.Context, i int) error {
			for n := messages; n < size; n += 2 {
				if _, err := r.post(ctx, g.sessions.all[i], Reply{Tokens: 1}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		report, err := g.measure(ctx, sessions, requests)
		messages = size
		if report != nil {
			messages += int(report.Turns) / sessions * 2 // the measured turns also left messages
		}
		return report, err
	}
}

func (g *growing) growViewers() func(ctx context.Context, size int) (*Report, error) {
	return func(ctx context.Context, size int) (*Report, error) {
		return Viewers(ctx, g.options, size, Reply{Tokens: 50, Interval: 20 * time.Millisecond})
	}
}

// growKeys creates keys, and makes each request with the next of them.
func (g *growing) growKeys() func(ctx context.Context, size int) (*Report, error) {
	var keys []string
	return func(ctx context.Context, size int) (*Report, error) {
		for len(keys) < size {
			var made struct{ Key string }
			body := map[string]any{"name": "bench", "scopes": []string{"write:sessions"}, "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
			if err := g.client.do(ctx, "POST", "/v1/keys", body, &made); err != nil {
				return nil, err
			}
			keys = append(keys, made.Key)
		}
		warm := &run{client: g.client}
		if err := inParallel(ctx, size, func(ctx context.Context, i int) error { return warm.admission(ctx, keys[i]) }); err != nil {
			return nil, err // a key's first request reads the store, so all keys were used before the measured time
		}
		var next atomic.Int64
		return g.measure(ctx, growthCallers, func(r *run) turn {
			return func(ctx context.Context) error {
				return r.admission(ctx, keys[int(next.Add(1))%len(keys)])
			}
		})
	}
}

// growHours asks for reports of longer and longer periods.
func (g *growing) growHours() func(ctx context.Context, size int) (*Report, error) {
	return func(ctx context.Context, size int) (*Report, error) {
		end := time.Now().UTC()
		query := url.Values{
			"startDate": {end.Add(-time.Duration(size) * time.Hour).Format(time.RFC3339)}, "endDate": {end.Format(time.RFC3339)},
			"granularity": {"month"},
		}
		return g.measure(ctx, growthCallers, func(r *run) turn {
			return func(ctx context.Context) error {
				begun := time.Now()
				if err := r.client.do(ctx, "GET", "/v1/analytics/metrics?"+query.Encode(), nil, nil); err != nil {
					return err
				}
				r.ended(begun, 0, ending{status: "completed"})
				return nil
			}
		})
	}
}
