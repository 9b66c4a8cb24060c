package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"parley/cmd/chaos/history"
)

func floodRows() []*row {
	return []*row{
		{name: "sends-at-once", fault: "5,000 sends at once (F7)", where: "embedded store", try: sendsAtOnce, short: true},
		{
			name: "drain-without-store", fault: "a node is shut down while Redis is suspended (F10)", where: "2 nodes, Redis",
			try: drainWithoutStore, short: true,
		},
	}
}

// allSends is the number of sends at once at a scale of 100 %.
const allSends = 5000

// memoryPerSend is the most memory that a waiting send may take, in bytes.
const memoryPerSend = 40 << 10

// sendsAtOnce makes all sends at the same time, each in a session of its own. Each must get its whole reply, or 503 at once with
// Retry-After.
func sendsAtOnce(w *world) {
	n := w.embedded(w.TempDir())
	w.api = newAPI("http://"+n.addr, w.record) // the gate would need two more connections for each send
	w.api.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	count := w.scaled(allSends, 100)
	w.say("schedule: %d sends", count)
	sessions := make([]string, count)
	each(64, count, func(i int) { sessions[i] = w.createSession() })
	before := n.memory()
	var whole, refusals atomic.Int64
	each(count, count, func(i int) {
		s := history.Send{Session: sessions[i], Content: fmt.Sprintf("f-%d say 30", i), Begun: time.Now()}
		a := w.api.call("POST", "/v1/sessions/"+s.Session+"/messages", map[string]any{"content": s.Content}, "", queued)
		switch a.status {
		case 200:
			m := a.message()
			s.Confirmed, s.Reply, s.Whole = time.Now(), m.ID, &m
			whole.Add(1)
		case 503:
			refusals.Add(1)
		}
		w.record.send(s)
	})
	w.say("%d whole, %d refused, %d KiB for each send", whole.Load(), refusals.Load(), (n.memory()-before)>>10/int64(count))
	if whole.Load()+refusals.Load() != int64(count) {
		w.broken(history.Answered, "%d sends: %d whole, %d refused", count, whole.Load(), refusals.Load())
	}
	if grown, most := n.memory()-before, int64(count*memoryPerSend+slack); grown > most {
		w.broken("memory is bounded", "%d sends took %d MB, at most %d MB are allowed", count, grown>>20, most>>20)
	}
	w.finish()
}

// each calls f for 0 to n-1, in that number of goroutines.
func each(goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range goroutines {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	work.Wait()
}

const (
	// drainTimeout is the configured time for live replies; drained is the longest time until the process has ended: the drain
	// timeout, 2 s for the ends of replies, and two times 2 s for the last events and responses.
	drainTimeout, drained = 2 * time.Second, 8 * time.Second
)

// drainWithoutStore shuts a node down while it has live replies and its store does not respond. The other node ends the replies
// after the store is back.
func drainWithoutStore(w *world) {
	s := w.onRedis(2, "", "PARLEY_DRAIN_TIMEOUT="+drainTimeout.String())
	n := w.nodes[rand.IntN(2)]
	w.underLoad([]step{
		{w.between(300*time.Millisecond, 2*time.Second), "stop Redis", s.Stop},
		{100 * time.Millisecond, "SIGTERM", func() {
			n.signal(syscall.SIGTERM)
			if !n.awaitExit(drained + margin) {
				w.broken("a shutdown is bounded", "the process still runs %v after SIGTERM", drained+margin)
			}
		}},
		{0, "continue Redis", s.Cont},
		{0, "start the node", func() { n.kill(); n.start() }},
	})
}
