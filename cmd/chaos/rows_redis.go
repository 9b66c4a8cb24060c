package main

import (
	"slices"
	"time"

	"parley/store/redis/redistest"
)

// refused is the time in which a request gets 503 while Redis does not respond.
const refused = 2 * time.Second

func redisRows() []*row {
	return []*row{
		{
			name: "redis-killed", fault: "`kill -9` of Redis; it starts again after 1 to 4 s", where: "2 nodes, Redis with AOF",
			try: func(w *world) {
				s := w.onRedis(2, "")
				w.underLoad(w.twice(time.Second, 4*time.Second, "kill Redis", s.Kill, "start Redis", s.Restart))
			},
			outage: 4*time.Second + 2*refused, ending: 4*time.Second + 2*refused, short: true,
		},
		{
			name: "redis-paused", fault: "Redis is suspended for 1 to 6 s", where: "2 nodes, Redis with AOF",
			try: func(w *world) {
				s := w.onRedis(2, "")
				w.underLoad(w.twice(time.Second, 6*time.Second, "stop Redis", s.Stop, "continue Redis", s.Cont))
			},
			outage: 6*time.Second + 2*refused, ending: 6*time.Second + 2*refused, short: true,
		},
		{
			name: "redis-full", fault: "the memory of Redis is full for 1 to 4 s", where: "2 nodes, Redis with `noeviction`",
			try: func(w *world) {
				s := w.onRedis(2, "")
				limit := func(most string) func() { return func() { s.Do("CONFIG", "SET", "maxmemory", most) } }
				w.underLoad(w.twice(time.Second, 4*time.Second, "fill Redis", limit("1mb"), "make room", limit("0")))
			},
			outage: 4*time.Second + refused, ending: 4*time.Second + refused, short: true,
		},
		{
			name: "redis-link-cut", fault: "the connections to Redis are cut, or its replies are lost, for 1 to 4 s",
			where:  "2 nodes, Redis",
			try:    func(w *world) { w.underLoad(w.brokenLink()) },
			outage: 4*time.Second + 2*refused, ending: 4*time.Second + 2*refused,
		},
		{
			name: "redis-emptied", fault: "Redis loses all data (FLUSHALL)", where: "2 nodes, Redis", lossy: true,
			allowed: []string{"session_not_found", "message_not_found"},
			try: func(w *world) {
				s := w.onRedis(2, "")
				w.underLoad([]step{{w.between(time.Second, 3*time.Second), "FLUSHALL", func() { s.Do("FLUSHALL") }}})
			},
			outage: 2 * refused, short: true,
		},
	}
}

// brokenLink starts nodes that reach Redis through a proxy. It returns steps in which the proxy cuts connections, and then
// forwards commands but loses their replies.
func (w *world) brokenLink() []step {
	w.needs("redis-server")
	p := redistest.NewProxy(w, redistest.Single(w).Addr)
	for range 2 {
		w.serve(w.TempDir(), p.URL)
	}
	// The proxy closes a connection 3 s after it has lost a reply.
	lose := func() { p.LoseReplies(3000) }
	return slices.Concat(
		w.twice(time.Second, 4*time.Second, "cut Redis off", p.Cut, "connect", p.Connect),
		w.twice(time.Second, 4*time.Second, "lose replies", lose, "heal", p.Heal))
}

// twice returns steps that begin and end a fault two times, each for a random time between low and high.
func (w *world) twice(low, high time.Duration, begin string, doBegin func(), end string, doEnd func()) (steps []step) {
	for range 2 {
		steps = append(steps,
			step{w.between(300*time.Millisecond, 2*time.Second), begin, doBegin},
			step{w.between(low, high), end, doEnd})
	}
	return steps
}
