package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"parley/cmd/chaos/history"
	"parley/store/redis/redistest"
)

// jump is longer than the 24 h after which a session expires.
const jump = 25 * time.Hour

func clockRows() []*row {
	return []*row{
		{
			name: "clock-jumps", fault: "the server's clock jumps 25 h ahead", where: "embedded store, a patched build",
			allowed: goneCodes, try: func(w *world) { w.clockJumps(w.patchedServer(), time.Second+w.margin) },
		},
		{
			name: "redis-clock-jumps", fault: "the clock of Redis jumps 25 h ahead", where: "2 nodes, Redis",
			allowed: goneCodes, try: func(w *world) { w.clockJumps(w.patchedRedis(), poll+w.margin) }, short: true,
		},
	}
}

// patched is the build that all tries share.
var patched clockBuild

// patchedServer starts a server with a patched clock and the embedded store. The function that it returns sets the clock ahead.
func (w *world) patchedServer() func() {
	binary, err := patched.get(w.binary)
	if err != nil {
		w.Skipf("%v", err)
	}
	w.binary = binary
	file := filepath.Join(w.TempDir(), "clock")
	w.embedded(w.TempDir(), clockVariable+"="+file)
	return func() {
		if err := os.WriteFile(file, fmt.Appendln(nil, int64(jump/time.Second)), 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

// patchedRedis starts a Redis with its own clock, and nodes. The function that it returns sets the clock ahead.
func (w *world) patchedRedis() func() {
	w.needs("redis-server")
	w.needs("gcc")
	s := redistest.SingleWithClock(w)
	for range 2 {
		w.serve(w.TempDir(), s.URL)
	}
	return func() { s.Advance(jump) }
}

// clockJumps sets the clock ahead under load. All sessions expire. Their viewers must be told within most, and nobody
// may get the text of the sessions afterwards.
func (w *world) clockJumps(ahead func(), most time.Duration) {
	var at time.Time
	var expired []string
	w.underLoad([]step{
		{w.between(2*time.Second, 4*time.Second), "the clock jumps", func() {
			w.record.mu.Lock()
			expired = w.record.sessions
			w.record.mu.Unlock()
			ahead()
			time.Sleep(100 * time.Millisecond) // until the server has read its clock
			at = time.Now()
			for _, id := range expired {
				w.record.removed(id)
			}
		}},
		{0, "wait until the viewers know", func() {
			if _, ok := eventually(most, func() bool { return w.untold(expired) == 0 }); !ok {
				w.broken(history.Gone, "%d viewers of expired sessions have not heard of their ends after %v",
					w.untold(expired), time.Since(at))
			}
		}},
	})
}

// untold counts the given sessions that have expired without an event for their watcher.
func (w *world) untold(sessions []string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range sessions {
		if told, watched := w.told[id]; watched && told.IsZero() {
			n++
		}
	}
	return n
}
