package main

import (
	"time"
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
			outage: 4*time.Second + 2*refused + margin, ending: 4*time.Second + 2*refused + margin, short: true,
		},
		{
			name: "redis-paused", fault: "Redis is suspended for 1 to 6 s", where: "2 nodes, Redis with AOF",
			try: func(w *world) {
				s := w.onRedis(2, "")
				w.underLoad(w.twice(time.Second, 6*time.Second, "stop Redis", s.Stop, "continue Redis", s.Cont))
			},
			outage: 6*time.Second + 2*refused + margin, ending: 6*time.Second + 2*refused + margin, short: true,
		},
		{
			name: "redis-full", fault: "the memory of Redis is full for 1 to 4 s", where: "2 nodes, Redis with `noeviction`",
			try: func(w *world) {
				s := w.onRedis(2, "")
				full := func() { s.Do("CONFIG", "SET", "maxmemory", "1mb") }
				w.underLoad(w.twice(time.Second, 4*time.Second, "fill Redis", full, "empty space", func() { s.Do("CONFIG", "SET", "maxmemory", "0") }))
			},
			outage: 4*time.Second + refused + margin, ending: 4*time.Second + refused + margin, short: true,
		},
		{
			name: "redis-emptied", fault: "Redis loses all data (FLUSHALL)", where: "2 nodes, Redis", lossy: true,
			allowed: []string{"session_not_found", "message_not_found"},
			try: func(w *world) {
				s := w.onRedis(2, "")
				w.underLoad([]step{{w.between(time.Second, 3*time.Second), "FLUSHALL", func() { s.Do("FLUSHALL") }}})
			},
			outage: 2*refused + margin, short: true,
		},
	}
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
