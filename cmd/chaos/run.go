package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"time"
)

// result is the result of one try.
type result struct {
	row        *row
	seed       uint64
	violations []string
	skipped    string // why the try could not run here; "" if it ran
	took       time.Duration
	worst      worst
	sends      int // confirmed
	pieces     int // deltas that viewers got
}

// conditions are the same for all tries of a run.
type conditions struct {
	binary string        // the server under test
	scale  int           // the size of floods and of series of faults, in percent
	margin time.Duration // added to each promised time, because a machine that runs the harness is busy
}

// try runs a row once, with the schedule of the seed.
func try(r *row, c conditions, seed uint64, say func(format string, about ...any)) result {
	begun := time.Now()
	s := &scene{}
	var w *world
	s.play(func() {
		w = newWorld(s, r, c, seed, say)
		r.try(w)
	})
	out := result{row: r, seed: seed, took: time.Since(begun)}
	out.violations, out.skipped = s.result()
	if w == nil {
		return out
	}
	out.worst = w.worst
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	for _, m := range w.record.h.Sends {
		if !m.Confirmed.IsZero() {
			out.sends++
		}
	}
	for _, v := range w.record.h.Views {
		out.pieces += len(v.Pieces)
	}
	return out
}

// needs skips the try if a command is not installed.
func (w *world) needs(command string) {
	if _, err := exec.LookPath(command); err != nil {
		w.Skipf("%s%s", command, notInstalled)
	}
}

// notInstalled ends the reason of a try that was skipped because a command is missing.
const notInstalled = " is not installed"

// plan says which tries a run makes.
type plan struct {
	rows     []*row
	seed     uint64
	tries    int           // tries of each row; 0 means as many as fit into duration
	duration time.Duration // no try begins after this time
	parallel int           // tries that run at the same time
	conditions
}

// run makes the tries of a plan, and calls done for each result, one at a time. A try of a row gets the seed of the plan plus the
// number of earlier tries of this row. Each row is tried at least once, unless ctx ends.
func (p plan) run(ctx context.Context, say func(format string, about ...any), done func(result)) {
	type job struct {
		row  *row
		seed uint64
	}
	jobs := make(chan job)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range p.parallel {
		workers.Go(func() {
			for j := range jobs {
				name := fmt.Sprintf("%s, seed %d: ", j.row.name, j.seed)
				r := try(j.row, p.conditions, j.seed, func(format string, about ...any) { say(name+format, about...) })
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	defer workers.Wait()
	defer close(jobs)
	end := time.Now().Add(p.duration)
	for n := uint64(0); p.tries == 0 || n < uint64(p.tries); n++ {
		for _, r := range p.rows {
			if n > 0 && p.tries == 0 && time.Now().After(end) {
				return
			}
			select {
			case jobs <- job{r, p.seed + n}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// randomSeed returns a seed that is easy to type.
func randomSeed() uint64 { return uint64(rand.IntN(1_000_000)) }
