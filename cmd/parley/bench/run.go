package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Options are common to all workloads.
type Options struct {
	Target   Target
	Duration time.Duration // the measured time
	Warmup   time.Duration // the time under load before it
	Sessions int           // sessions that exist before the run
	Keep     bool          // do not delete the sessions at the end
	Progress io.Writer     // gets a line a second; nil for none
}

// run is one run of a workload.
type run struct {
	Options
	client   *client
	server   *process // nil if it is unknown
	sessions *sessionPool
	counters

	mu     sync.Mutex
	errors []string // guarded by mu; the first different errors
}

// counters count the events since the load began. Bytes are bytes of reply text.
type counters struct {
	turns, failed, frames, bytes atomic.Int64
	endedBytes, endedTokens      atomic.Int64 // of turns that have ended, to convert bytes to tokens
	measuring                    atomic.Bool  // histograms count only now

	first, whole *histogram // time to the first text, and to the end of a turn
}

// newRun connects to the target.
func newRun(o Options) (*run, error) {
	c, err := newClient(o.Target)
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r := &run{Options: o, client: c, sessions: &sessionPool{client: c, limit: turnsOfSession}}
	r.first, r.whole = newHistogram(), newHistogram()
	if r.server, err = findProcess(c.target); err != nil {
		return nil, err
	}
	return r, nil
}

// turnsOfSession is the number of turns after which a session is replaced. Ten turns of 200 tokens fit into the default window
// of 4,096 tokens, so no turn waits for a summary.
const turnsOfSession = 10

// close deletes the sessions of the run.
func (r *run) close(ctx context.Context) {
	defer r.client.close()
	if !r.Keep {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		r.sessions.remove(limit)
	}
}

// fail records a failed turn.
func (r *run) fail(err error) {
	r.failed.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 5
	for _, known := range r.errors {
		if known == err.Error() {
			return
		}
	}
	if len(r.errors) < most {
		r.errors = append(r.errors, err.Error())
	}
}

// ended records a turn that has ended.
func (r *run) ended(begun time.Time, bytes int, e ending) {
	if e.status != "completed" {
		r.fail(fmt.Errorf("a reply ended as %s", e.status))
		return
	}
	r.turns.Add(1)
	r.endedBytes.Add(int64(bytes))
	r.endedTokens.Add(int64(e.tokens))
	if r.measuring.Load() {
		r.whole.observe(time.Since(begun))
	}
}

// turn is one unit of load. It records its result with ended, or returns an error.
type turn func(ctx context.Context) error

// failurePause is the pause of a caller after a failed turn, so that a broken server is not flooded.
const failurePause = 100 * time.Millisecond

// drive runs n callers for the warm-up and the measured time, and returns the report. The callers start within spread, so that
// they do not all end their turns at once. Turns that have not ended when the time is over do not count.
func (r *run) drive(ctx context.Context, workload string, n int, spread time.Duration, do turn) (*Report, error) {
	if err := r.try(ctx, do); err != nil {
		return nil, fmt.Errorf("the first turn failed: %w", err)
	}
	idle := r.resident()
	load, stop := context.WithCancel(ctx)
	defer stop()
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() { r.call(load, spread*time.Duration(i)/time.Duration(n), do) })
	}
	report, err := r.measure(ctx, workload, idle)
	stop()
	callers.Wait()
	return report, err
}

// try makes one turn, alone. So a mistake shows at once, and with one message.
func (r *run) try(ctx context.Context, do turn) error {
	limit, cancel := context.WithTimeoutCause(ctx, requestTimeout, errors.New("it did not end in "+requestTimeout.String()))
	defer cancel()
	if err := do(limit); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errors) > 0 {
		return errors.New(r.errors[0])
	}
	return nil
}

// call waits for delay, and then makes turns one after the other until ctx ends.
func (r *run) call(ctx context.Context, delay time.Duration, do turn) {
	for pause(ctx, delay) {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			r.fail(err)
			delay = failurePause
		} else {
			delay = 0
		}
	}
}

// pause waits. It returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// measure waits for the warm-up, and measures the load that other goroutines make. It prints a line of progress each second. idle
// is the server's resident memory before the load.
func (r *run) measure(ctx context.Context, workload string, idle int64) (*Report, error) {
	if err := r.watch(ctx, workload+", warming up", r.Warmup, nil); err != nil {
		return nil, err
	}
	before, err := r.sample(ctx, false)
	if err != nil {
		return nil, err
	}
	r.measuring.Store(true)
	var resident []int64
	err = r.watch(ctx, workload, r.Duration, func() { resident = append(resident, r.resident()) })
	r.measuring.Store(false)
	if err != nil {
		return nil, err
	}
	after, err := r.sample(ctx, true)
	if err != nil {
		return nil, err
	}
	return r.report(workload, before, after, idle, resident), nil
}

// watch waits for d. After each second, and at the end, it calls each and prints a line of progress.
func (r *run) watch(ctx context.Context, what string, d time.Duration, each func()) error {
	begun, last, lastAt := time.Now(), r.now(), time.Now()
	for left := d; left > 0; left = d - time.Since(begun) {
		if !pause(ctx, min(left, time.Second)) {
			return context.Cause(ctx)
		}
		if each != nil {
			each()
		}
		now, seconds := r.now(), time.Since(lastAt).Seconds()
		fmt.Fprintf(r.Progress, "%s: %.1f of %.1f s, %.0f turns/s, %.0f frames/s, %d failed\n", what, time.Since(begun).Seconds(),
			d.Seconds(), float64(now.turns-last.turns)/seconds, float64(now.frames-last.frames)/seconds, now.failed)
		last, lastAt = now, time.Now()
	}
	return nil
}

// resident returns the server's resident memory; 0 if it is unknown.
func (r *run) resident() int64 {
	if r.server == nil {
		return 0
	}
	u, _ := r.server.read()
	return u.resident
}

// counts is a copy of the counters.
type counts struct{ turns, failed, frames, bytes int64 }

func (c *counters) now() counts {
	return counts{c.turns.Load(), c.failed.Load(), c.frames.Load(), c.bytes.Load()}
}

// sample holds all figures at the beginning or at the end of the measured time.
type sample struct {
	counts
	at      time.Time
	own     time.Duration // CPU time of this process
	server  usage
	mallocs float64
	hasHeap bool // mallocs is known
	redis   redisUsage
}

// sample reads all figures. The request for /metrics costs the server CPU time, which must not count. So sample makes this
// request first at the beginning of the measured time, and last at the end. last is true at the end.
func (r *run) sample(ctx context.Context, last bool) (s sample, err error) {
	if !last {
		s.mallocs, s.hasHeap = r.client.mallocs(ctx)
	}
	s.counts, s.at, s.own = r.now(), time.Now(), ownCPU()
	if r.server != nil {
		if s.server, err = r.server.read(); err != nil {
			return s, fmt.Errorf("the server's process has ended: %w", err)
		}
	}
	if r.Target.Redis != "" {
		if s.redis, err = readRedis(ctx, r.Target.Redis); err != nil {
			return s, err
		}
	}
	if last {
		s.mallocs, s.hasHeap = r.client.mallocs(ctx)
	}
	return s, nil
}
