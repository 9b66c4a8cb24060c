package background

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// sleeping returns a job that takes a second and returns number. If the job is cancelled, it returns -number at once.
func sleeping(number int, calls *atomic.Int64) func(context.Context) int {
	return func(ctx context.Context) int {
		calls.Add(1)
		select {
		case <-time.After(time.Second):
			return number
		case <-ctx.Done():
			return -number
		}
	}
}

func TestWorker_Join_SharesRunningJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := NewWorker[int](1), atomic.Int64{}
		first, started := w.Join("s", sleeping(1, &calls))
		same, again := w.Join("s", sleeping(2, &calls))
		other, second := w.Join("t", sleeping(3, &calls)) // no limit applies to Join
		if !started || again || same != first || !second {
			t.Errorf("Join started jobs: %v %v %v, want true false true", started, again, second)
		}
		<-first.Done()
		<-other.Done()
		if first.Result() != 1 || other.Result() != 3 || calls.Load() != 2 {
			t.Errorf("the results are %d and %d after %d calls", first.Result(), other.Result(), calls.Load())
		}
		w.Drain(t.Context())
		if job, _ := w.Join("s", sleeping(4, &calls)); job != nil {
			t.Error("a job was started in a drain")
		}
	})
}

func TestWorker_Enqueue_NewestReplacesWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := NewWorker[int](2), atomic.Int64{}
		for _, test := range []struct {
			session string
			want    bool
		}{{"s", true}, {"s", true}, {"s", true}, {"t", true}, {"u", false}} {
			if got := w.Enqueue(test.session, sleeping(1, &calls)); got != test.want {
				t.Errorf("Enqueue for session %s returned %v", test.session, got)
			}
		}
		time.Sleep(time.Minute)
		if calls.Load() != 3 { // the third job of s replaced the second
			t.Errorf("%d jobs ran", calls.Load())
		}
		if !w.Enqueue("u", sleeping(1, &calls)) {
			t.Error("Enqueue refused a job after the others were done")
		}
		w.Drain(t.Context())
		if calls.Load() != 4 || w.Enqueue("u", sleeping(1, &calls)) {
			t.Errorf("%d jobs ran", calls.Load())
		}
	})
}

func TestWorker_Cancel_StopsJobAndDropsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := NewWorker[int](2), atomic.Int64{}
		job, _ := w.Join("s", sleeping(1, &calls))
		w.Enqueue("s", sleeping(2, &calls))
		synctest.Wait()
		w.Cancel("s")
		w.Cancel("nobody")
		<-job.Done()
		began := time.Now()
		if w.Drain(t.Context()); time.Since(began) != 0 || job.Result() != -1 || calls.Load() != 1 {
			t.Errorf("Drain took %v; the result is %d after %d calls", time.Since(began), job.Result(), calls.Load())
		}
	})
}

func TestWorker_Drain_DeadlineCancelsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, calls := NewWorker[int](2), atomic.Int64{}
		job, _ := w.Join("s", sleeping(1, &calls))
		w.Enqueue("s", sleeping(2, &calls))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if w.Drain(ctx); time.Since(began) != 100*time.Millisecond || job.Result() != -1 || calls.Load() != 1 {
			t.Errorf("Drain took %v; the result is %d after %d calls", time.Since(began), job.Result(), calls.Load())
		}
	})
}

// The test draws schedules of joins, enqueues, cancels and pauses. A session must never have two jobs at once. After
// the drain, no job may be left.
func TestWorker_AnySchedule_OneJobPerSession(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 3*4-1), 1, 40).Draw(rt, "steps")
		limit := rapid.IntRange(1, 3).Draw(rt, "limit")
		synctest.Test(t, func(t *testing.T) {
			w := NewWorker[int](limit)
			var running [3]atomic.Int64
			job := func(session int) func(context.Context) int {
				return func(ctx context.Context) int {
					if running[session].Add(1) != 1 {
						t.Error("a session has two jobs at once")
					}
					defer running[session].Add(-1)
					return sleeping(1, new(atomic.Int64))(ctx)
				}
			}
			for _, step := range steps {
				session := step % 3
				switch step / 3 {
				case 0:
					w.Join(fmt.Sprint(session), job(session))
				case 1:
					w.Enqueue(fmt.Sprint(session), job(session))
				case 2:
					w.Cancel(fmt.Sprint(session))
				case 3:
					time.Sleep(600 * time.Millisecond)
				}
			}
			w.Drain(t.Context())
			if len(w.jobs) != 0 {
				t.Errorf("%d jobs are left", len(w.jobs))
			}
		})
	})
}
