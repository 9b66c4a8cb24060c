package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parley/store"
	"parley/store/redis/redistest"
)

// onRedis is a recount with two nodes on one Redis. The test advances Redis' clock, but not the clock of the nodes.
type onRedis struct {
	*recount
	redis   *redistest.Server
	expired int // number of sessions that have expired in mid-reply
}

func newOnRedis(t rapid.TB, redis *redistest.Server, database int) *onRedis {
	var backends []*store.Backend
	for range 2 {
		b, err := store.Open(context.Background(), fmt.Sprintf("%s/%d%s", redis.URL, database, redistest.Patient), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		backends = append(backends, b)
	}
	r := &onRedis{recount: newRecount(t, backends...), redis: redis}
	r.held, r.now, r.rest, r.pass = true, redis.Now, r.awaitRest, r.jump
	r.passDay = func() { r.drain(); r.jump(24 * time.Hour) }
	r.land(r.now())
	return r
}

// awaitRest waits until all replies except held ones have ended.
func (r *onRedis) awaitRest() {
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		moving := 0
		for _, h := range r.holds {
			select {
			case <-h.release:
			default:
				if !h.isOver() && !h.unused {
					moving--
				}
			}
		}
		r.mu.Unlock()
		for _, n := range r.nodes {
			moving += n.service.LiveReplies()
		}
		if moving == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			r.t.Fatalf("%d replies that are not held are still live", moving)
		}
	}
}

// jump advances Redis' clock by d. If a session with a held reply expires on the way, jump stops 30 minutes after the expiry
// until the reply has ended. Redis keeps the reservation of the reply only for an hour after the expiry (store/redis/schema.go).
func (r *onRedis) jump(d time.Duration) {
	for to := r.now().Add(d); ; {
		next := to
		for _, o := range r.owners {
			for _, s := range o.sessions {
				if by := s.created.Add(24*time.Hour + 30*time.Minute); s.hold != nil && !s.hold.isOver() && by.Before(next) {
					next = by
				}
			}
		}
		r.land(next)
		for _, o := range r.owners {
			for _, s := range o.sessions {
				if !s.exists(r.now()) && s.hold != nil && !s.hold.isOver() {
					s.hold.awaitEnd(r.t)
					r.expired++
				}
			}
		}
		r.rest()
		if !r.now().Before(to) {
			return
		}
	}
}

// land sets Redis' clock to a time, or to a few minutes later. It avoids the last minutes of an hour, and the minutes around the
// expiry of a session. An event near the end of a period could count before or after that end.
func (r *onRedis) land(at time.Time) {
	for again := true; again; {
		again = at.Minute() >= 55
		for _, o := range r.owners {
			for _, s := range o.sessions {
				again = again || at.Sub(s.created.Add(24*time.Hour)).Abs() < 2*time.Minute
			}
		}
		if again {
			at = at.Add(time.Minute)
		}
	}
	r.redis.Advance(max(0, at.Sub(r.now())))
}

// TestRecount_Redis_FiguresMatch is TestRecount_RandomSteps_FiguresMatch with two nodes on one Redis. The steps come one after
// another.
func TestRecount_Redis_FiguresMatch(t *testing.T) {
	t.Parallel()
	redis, runs, expired, kinds, began := redistest.SingleWithClock(t, "--databases", "10000"), 0, 0, make(map[string]int), time.Now()
	first := redis.Now()
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		r := newOnRedis(rt, redis, runs)
		defer r.stop()
		r.run(rt, 400)
		r.kindsOf(kinds)
		expired += r.expired
	})
	t.Logf("%d runs, %v, %d sessions that expired in mid-reply, %.0f days of Redis' clock, in %v",
		runs, kinds, expired, redis.Now().Sub(first).Hours()/24, time.Since(began))
}

// TestRecount_RedisNodesAtOnce_FiguresMatch has eight clients that take random steps at the same time, on both nodes and for all
// owners. When no reply is live, both nodes must report the figures of the recorded events.
func TestRecount_RedisNodesAtOnce_FiguresMatch(t *testing.T) {
	t.Parallel()
	r := newOnRedis(t, redistest.SingleWithClock(t), 0)
	defer r.stop()
	for round := range 3 {
		var clients sync.WaitGroup
		for i := range 8 {
			c := &recountClient{r: r.recount, random: rand.New(rand.NewPCG(uint64(round), uint64(i)))}
			clients.Go(func() {
				for range 60 {
					c.step()
				}
			})
		}
		clients.Wait()
		r.rest()
		for _, o := range r.owners {
			for _, n := range r.nodes {
				now := r.now().UTC()
				r.check(n, o, now.Add(-48*time.Hour), now.Add(time.Hour), "hour")
			}
		}
		r.jump([]time.Duration{3 * time.Hour, 22 * time.Hour, 0}[round])
	}
	kinds := make(map[string]int)
	r.kindsOf(kinds)
	t.Log(kinds)
}

// kindsOf adds the number of events of each kind to kinds.
func (r *recount) kindsOf(kinds map[string]int) {
	for _, e := range r.events {
		kinds[e.kind]++
	}
}

// recountClient is a client that takes random steps.
type recountClient struct {
	r      *recount
	random *rand.Rand
	sends  int
}

func (c *recountClient) step() {
	r, n, o := c.r, c.r.nodes[c.random.IntN(len(c.r.nodes))], c.r.owners[c.random.IntN(len(c.r.owners))]
	r.mu.Lock()
	sessions := len(o.sessions)
	r.mu.Unlock()
	do := c.random.IntN(20)
	if sessions == 0 || do < 3 {
		c.create(n, o)
		return
	}
	r.mu.Lock()
	s := o.sessions[max(0, sessions-1-c.random.IntN(3))] // one of the three newest, so that clients use the same sessions
	path, reply := "/sessions/"+s.id, s.reply
	r.mu.Unlock()
	switch {
	case do < 13:
		c.send(n, o, s)
	case do < 16:
		r.call(n, o, "POST", path+"/messages/"+reply+"/cancel", nil)
	case do < 17:
		r.call(n, o, "DELETE", path+"/messages", nil)
	case do < 18:
		if status, _ := r.call(n, o, "DELETE", path, nil); status == 200 {
			r.mu.Lock()
			s.deleted = true
			r.mu.Unlock()
		}
	default:
		r.call(n, o, "GET", path+"/messages", nil)
	}
}

func (c *recountClient) create(n *recountNode, o *recountOwner) {
	status, made := c.r.call(n, o, "POST", "/sessions", map[string]any{"userId": "user_0123456789abcdef"})
	if status != 200 {
		return
	}
	at := moment(c.r.t, made["createdAt"])
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	o.sessions = append(o.sessions, &recountSession{id: made["sessionId"].(string), created: at, last: at})
}

// send sends a message to a node. On average, one message in five goes to all nodes at once, with the same idempotency key.
func (c *recountClient) send(n *recountNode, o *recountOwner, s *recountSession) {
	r := c.r
	first := time.Duration(c.random.IntN(4)) * time.Millisecond
	content, err := json.Marshal(script{
		Owner: o.name, First: first, Total: first + time.Duration(c.random.IntN(10))*time.Millisecond, Silent: c.random.IntN(5) == 0,
		Fails: c.random.IntN(5) == 0, Prompt: c.random.IntN(300), Completion: c.random.IntN(300),
	})
	if err != nil {
		r.t.Error(err)
	}
	role := []string{"user", "user", "system"}[c.random.IntN(3)]
	body := map[string]any{
		"content": string(content), "role": role, "streaming": true, "onBusy": []string{"reject", "interrupt", "enqueue"}[c.random.IntN(3)],
	}
	c.sends++
	on, key := []*recountNode{n}, fmt.Sprintf("%p-%d", c, c.sends)
	if c.random.IntN(5) == 0 {
		on = r.nodes
	}
	var all sync.WaitGroup
	for _, n := range on {
		all.Go(func() {
			status, reply := r.call(n, o, "POST", "/sessions/"+s.id+"/messages", body, "Idempotency-Key", key)
			if status != 200 || reply["replayed"] != nil {
				return
			}
			at := moment(r.t, reply["createdAt"])
			r.mu.Lock()
			s.reply = reply["messageId"].(string)
			if at.After(s.last) {
				s.last = at
			}
			r.mu.Unlock()
			r.note(recordedEvent{owner: o.name, kind: role})
		})
	}
	all.Wait()
}
