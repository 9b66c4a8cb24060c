package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Growth is the cost of a workload at each size of a dimension.
type Growth struct {
	Dimension string  `json:"dimension"`
	What      string  `json:"what"` // the unit of the cost
	Points    []Point `json:"points"`
}

// Point is the cost at one size.
type Point struct {
	Size   int     `json:"size"`         // the size in the middle of the measured time
	Cost   float64 `json:"microseconds"` // CPU time of the server; the median time of a turn if the process is unknown
	Report *Report `json:"report"`
}

// dimension is something that grows, for example the number of sessions. prepare returns its grower.
type dimension struct {
	name    string
	what    string // the work that has the cost
	first   int    // the smallest size
	perText bool   // the cost is that of a token at a viewer, not of a turn
	prepare func(g *growing) grower
}

// A grower makes something grow to a size, and measures there. It returns the size in the middle of the measured time.
type grower func(ctx context.Context, size int) (reached int, report *Report, err error)

// growing holds the options, the client and the sessions that all sizes of one dimension use.
type growing struct {
	options  Options
	client   *client
	sessions *sessionPool
	keys     []string // ids of the created API keys
}

// dimensions lists all dimensions, in the order of the plots.
var dimensions = []dimension{
	{"sessions", "a JSON turn", 1000, false, (*growing).growSessions},
	{"messages", "a JSON turn in a session with so many messages", 50, false, (*growing).growMessages},
	{"viewers", "a token that reaches a viewer", 32, true, (*growing).growViewers},
	{"keys", "an authenticated request, while so many keys are used in turn", 64, false, (*growing).growKeys},
}

// Dimensions returns the names of the dimensions.
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

// Grow doubles a dimension and measures at each size. first is the smallest size; 0 for the default. Neither first nor doublings
// may be negative.
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
	growing := &growing{options: o, client: c, sessions: base.sessions}
	defer growing.revokeKeys(ctx)
	at := d.prepare(growing)
	g := &Growth{Dimension: d.name, What: d.what}
	for i := range doublings + 1 {
		size := first << i
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "growth: %d %s\n", size, d.name)
		}
		reached, report, err := at(ctx, size)
		if err != nil {
			return g, err
		}
		g.Points = append(g.Points, Point{reached, d.cost(report), report})
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

// Err returns the first error of Report.Err at any size. Then the figures must not be used.
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

func (g *growing) growSessions() grower {
	return func(ctx context.Context, size int) (int, *Report, error) {
		if err := g.sessions.fill(ctx, size-len(g.sessions.all)); err != nil {
			return 0, nil, err
		}
		report, err := g.measure(ctx, growthCallers, requests)
		return size, report, err
	}
}

// growMessages uses few sessions, because it needs a turn for every two messages. The measured turns also add messages.
func (g *growing) growMessages() grower {
	return func(ctx context.Context, size int) (int, *Report, error) {
		if err := g.sessions.fill(ctx, growthCallers-len(g.sessions.all)); err != nil {
			return 0, nil, err
		}
		begin, err := g.fillTo(ctx, size)
		if err != nil {
			return 0, nil, err
		}
		report, err := g.measure(ctx, growthCallers, requests)
		if err != nil {
			return 0, nil, err
		}
		end, err := g.fillTo(ctx, 0)
		return (begin + end) / 2, report, err
	}
}

// fillTo posts messages until each session has at least size of them. It returns the mean number of messages of a session.
func (g *growing) fillTo(ctx context.Context, size int) (mean int, err error) {
	r := &run{Options: g.options, client: g.client}
	var all atomic.Int64
	err = inParallel(ctx, len(g.sessions.all), func(ctx context.Context, i int) error {
		var session struct{ MessageCount int }
		if err := g.client.do(ctx, "GET", "/v1/sessions/"+g.sessions.all[i], nil, &session); err != nil {
			return err
		}
		for ; session.MessageCount < size; session.MessageCount += 2 {
			if _, err := r.post(ctx, g.sessions.all[i], Reply{Tokens: 1}); err != nil {
				return err
			}
		}
		all.Add(int64(session.MessageCount))
		return nil
	})
	return int(all.Load()) / len(g.sessions.all), err
}

func (g *growing) growViewers() grower {
	return func(ctx context.Context, size int) (int, *Report, error) {
		report, err := Viewers(ctx, g.options, size, Reply{Tokens: 50, Interval: 20 * time.Millisecond})
		return size, report, err
	}
}

// growKeys creates keys. The requests use the keys one after the other, and then begin again with the first key.
func (g *growing) growKeys() grower {
	var keys []string
	return func(ctx context.Context, size int) (int, *Report, error) {
		for len(keys) < size {
			key, err := g.createKey(ctx)
			if err != nil {
				return 0, nil, err
			}
			keys = append(keys, key)
		}
		warm := &run{client: g.client}
		if err := inParallel(ctx, size, func(ctx context.Context, i int) error { return warm.admission(ctx, keys[i]) }); err != nil {
			return 0, nil, err // a key's first request reads the store, so all keys were used before the measured time
		}
		var next atomic.Int64
		report, err := g.measure(ctx, growthCallers, func(r *run) turn {
			return func(ctx context.Context) error {
				return r.admission(ctx, keys[int(next.Add(1))%len(keys)])
			}
		})
		return size, report, err
	}
}

// createKey creates an API key that expires after an hour. Grow revokes it at the end.
func (g *growing) createKey(ctx context.Context) (string, error) {
	var made struct{ Key, KeyID string }
	body := map[string]any{
		"name": "bench", "scopes": []string{"write:sessions"}, "expiresAt": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	}
	err := g.client.do(ctx, "POST", "/v1/keys", body, &made)
	g.keys = append(g.keys, made.KeyID)
	return made.Key, err
}

// revokeKeys revokes the keys of createKey. Keys that it cannot revoke expire.
func (g *growing) revokeKeys(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_ = inParallel(ctx, len(g.keys), func(ctx context.Context, i int) error {
		return g.client.do(ctx, "DELETE", "/v1/keys/"+g.keys[i], nil, nil)
	})
}
