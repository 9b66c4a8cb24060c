package background

import (
	"context"
	"sync"
)

// Worker runs jobs in the background, at most one for each session at a time. R is the type of a job's result. Methods
// may be called from any goroutine.
type Worker[R any] struct {
	limit int

	mu       sync.Mutex
	jobs     map[string]*Job[R] // guarded by mu; running jobs, by session
	draining bool               // guarded by mu
	running  sync.WaitGroup
}

// NewWorker returns a Worker. Enqueue starts no job while limit jobs are running.
func NewWorker[R any](limit int) *Worker[R] {
	return &Worker[R]{limit: limit, jobs: make(map[string]*Job[R])}
}

// Job is a job that a Worker has started.
type Job[R any] struct {
	cancel context.CancelFunc
	done   chan struct{}
	result R                       // set before done is closed
	next   func(context.Context) R // guarded by Worker.mu; the function of the next job, nil for none
}

// Done returns a channel that is closed when the job has ended.
func (j *Job[R]) Done() <-chan struct{} { return j.done }

// Result returns the job's result. Call it only after Done is closed.
func (j *Job[R]) Result() R { return j.result }

// Join returns the session's running job, or starts a job that calls run. In a drain, Join starts no job: it returns
// the running job, or nil. The limit does not apply to Join, because a turn waits for each of these jobs.
func (w *Worker[R]) Join(session string, run func(context.Context) R) (job *Job[R], started bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch job := w.jobs[session]; {
	case job != nil:
		return job, false
	case w.draining:
		return nil, false
	}
	return w.startLocked(session, run), true
}

// Enqueue starts a job that calls run. If the session has a running job, run waits until that job ends, and replaces a
// function that waits already. Enqueue returns false if run will not be called: too many jobs are running, or a drain
// has begun. Even if Enqueue returns true, a cancel, a drain or a newer function may drop a run that still waits.
func (w *Worker[R]) Enqueue(session string, run func(context.Context) R) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch job := w.jobs[session]; {
	case w.draining:
		return false
	case job != nil:
		job.next = run
	case len(w.jobs) >= w.limit:
		return false
	default:
		w.startLocked(session, run)
	}
	return true
}

func (w *Worker[R]) startLocked(session string, run func(context.Context) R) *Job[R] {
	ctx, cancel := context.WithCancel(context.Background())
	job := &Job[R]{cancel: cancel, done: make(chan struct{})}
	w.jobs[session] = job
	w.running.Go(func() {
		defer cancel()
		job.result = run(ctx)
		w.mu.Lock()
		delete(w.jobs, session)
		if job.next != nil && ctx.Err() == nil && !w.draining {
			w.startLocked(session, job.next)
		}
		w.mu.Unlock()
		close(job.done)
	})
	return job
}

// Cancel cancels the session's running job and drops the job that waits after it. Cancel does not wait for the end of
// the job.
func (w *Worker[R]) Cancel(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job := w.jobs[session]; job != nil {
		job.cancel()
	}
}

// Drain refuses new jobs and returns when no job is running. When ctx ends, it cancels the running jobs.
func (w *Worker[R]) Drain(ctx context.Context) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, job := range w.jobs {
			job.cancel()
		}
	})
	defer stop()
	w.running.Wait()
}
