package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"parley/cmd/chaos/history"
)

func floodRows() []*row {
	return []*row{
		{name: "sends-at-once", fault: "5,000 sends at once", where: "embedded store", try: sendsAtOnce, short: true},
		{
			name: "drain-without-store", fault: "a node is shut down while Redis is suspended", where: "2 nodes, Redis",
			try: drainWithoutStore, short: true,
		},
	}
}

// allSends is the number of sends at once at a scale of 100 %. Half of them may be in progress.
const allSends = 5000

// flooded is the longest time until a send is refused. The server refuses at once, but first it must accept all connections.
const flooded = 10 * time.Second

const (
	// memoryInProgress is the memory, in bytes, that the server plans for a send in progress. memoryRefused is the
	// memory of the connection of a refused send.
	memoryInProgress, memoryRefused = 128 << 10, 24 << 10
)

// sendsAtOnce makes all sends at the same time, each in a session of its own. Each must get its whole reply, or 503 at once with
// Retry-After and a counted cause.
func sendsAtOnce(w *world) {
	count := w.scaled(allSends, 100)
	n := w.embedded(w.TempDir(), fmt.Sprintf("PARLEY_MAX_INFLIGHT=%d", count/2))
	w.api = newAPI(w.scene, "http://"+n.addr, w.record) // the gate would need two more connections for each send
	w.say("schedule: %d sends, %d at most in progress", count, count/2)
	sessions := make([]string, count)
	each(64, count, func(i int) { sessions[i] = w.createSession() })
	before, counted, begun := n.memory(), w.unavailable(n), time.Now()
	var whole, refusals atomic.Int64
	each(count, count, func(i int) {
		s := history.Send{Session: sessions[i], Content: fmt.Sprintf("f-%d say 120", i), Begun: time.Now()}
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
	grown := n.memory() - before
	w.say("%d whole, %d refused, %d MB", whole.Load(), refusals.Load(), grown>>20)
	if whole.Load()+refusals.Load() != int64(count) || whole.Load() == 0 || refusals.Load() == 0 {
		w.broken(history.Answered, "%d sends: %d whole, %d refused", count, whole.Load(), refusals.Load())
	}
	if most := int64(count/2*memoryInProgress + count*memoryRefused + slack); grown > most {
		w.broken("memory is bounded", "%d sends took %d MB, at most %d MB are allowed", count, grown>>20, most>>20)
	}
	if n := w.unavailable(n) - counted; n != int(refusals.Load()) {
		w.broken("each 503 has a counted cause", "parley_unavailable_total grew by %d for %d responses", n, refusals.Load())
	}
	w.expectQuickRefusals(begun, flooded)
	w.finish()
}

// unavailable returns the number of 503 responses in the metrics of a node, for all causes together.
func (w *world) unavailable(n *node) (sum int) {
	response, err := probe.Get("http://" + n.addr + "/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "parley_unavailable_total{") {
			_, value, _ := strings.Cut(lines.Text(), "} ")
			count, _ := strconv.Atoi(value)
			sum += count
		}
	}
	return sum
}

// each calls f with each number from 0 to n-1. It uses the given number of goroutines, which begin at the same time.
func each(goroutines, n int, f func(i int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	begin := make(chan struct{})
	defer work.Wait()
	defer close(begin)
	for range goroutines {
		work.Go(func() {
			<-begin
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
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
	n := w.nodes[w.random.IntN(2)]
	w.underLoad([]step{
		{w.between(300*time.Millisecond, 2*time.Second), "stop Redis", s.Stop},
		{100 * time.Millisecond, "SIGTERM", func() {
			n.signal(syscall.SIGTERM)
			if !n.awaitExit(drained + w.margin) {
				w.broken("a shutdown is bounded", "the process still runs %v after SIGTERM", drained+w.margin)
			}
		}},
		{0, "continue Redis", s.Cont},
		{0, "start the node", func() { n.kill(); n.start() }},
	})
}
