package embedded

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/conversation/window"
	"parley/stream"
)

// usedBy returns the sum of an owner's usage, without the session time.
func usedBy(t testing.TB, s *Store, owner conversation.Owner) usage.Bucket {
	t.Helper()
	used, err := s.Usage(t.Context(), owner, 0, 1<<30)
	must(t, err)
	var sum usage.Bucket
	for i := range used.Hours {
		sum.Add(&used.Hours[i].Bucket)
	}
	sum.SessionTime = 0
	return sum
}

func wantUsed(t testing.TB, s *Store, what string, want usage.Bucket) {
	t.Helper()
	got := usedBy(t, s, somebody)
	if diff := cmp.Diff(maps.Collect(want.All()), maps.Collect(got.All())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func countKeys(t testing.TB, s *Store, bucket string) (n int) {
	t.Helper()
	must(t, s.view(t.Context(), func(r *reading) error {
		return r.bucket(bucket).ForEach(func(_, _ []byte) error {
			n++
			return nil
		})
	}))
	return n
}

// verifyUsage checks that each owner's usage is consistent with the rest of the file. Every turn that began must have ended, be
// live, or be unsettled. The usage must include the usage of all existing sessions.
func (w *writing) verifyUsage() error {
	sums := make(map[conversation.Owner]*usage.Bucket)
	of := func(key []byte) *usage.Bucket {
		owner, _, _ := cutOwner(key)
		if sums[owner] == nil {
			sums[owner] = new(usage.Bucket)
		}
		return sums[owner]
	}
	err := w.bucket(usageBucket).ForEach(func(key, value []byte) error {
		var b usage.Bucket
		err := readUsage(value, &b)
		of(key).Add(&b)
		return err
	})
	for _, bucket := range []string{liveBucket, unsettledBucket} {
		err = errors.Join(err, w.bucket(bucket).ForEach(func(key, _ []byte) error {
			of(key).AssistantMessages--
			return nil
		}))
	}
	err = errors.Join(err, w.bucket(sessionsBucket).ForEach(func(key, value []byte) error {
		session, err := readSession(value, "")
		sum := of(key)
		sum.Sessions--
		sum.SessionTime -= int64(session.LastActivity - session.CreatedAt)
		sum.PromptTokens -= int64(session.TokenUsage.Prompt)
		sum.CompletionTokens -= int64(session.TokenUsage.Completion)
		return err
	}))
	for owner, sum := range sums {
		ended := sum.Completed + sum.Cancelled + sum.Failed + sum.Interrupted
		if sum.AssistantMessages != ended || min(sum.Sessions, sum.SessionTime, sum.PromptTokens, sum.CompletionTokens) < 0 {
			err = errors.Join(err, fmt.Errorf("the usage of %v, minus that of existing sessions and turns, is %+v", owner, *sum))
		}
	}
	return err
}

func TestUsage_TurnOutlivesSession_SettledOnce(t *testing.T) {
	t.Parallel()
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprint("removed: ", removed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, newPath(t))
				begun := beginTurn(t, s, newSession(t, s).ID, "hello")
				journalText(t, s, begun.Key, 0, "some text")
				time.Sleep(25 * time.Hour)
				remove := func() {
					gone, _, err := s.RemoveExpired(t.Context())
					must(t, err)
					if len(gone) != 1 || gone[0].Session.LiveReply != begun.Reply.ID {
						t.Errorf("RemoveExpired removed %+v, want the session with the live turn", gone)
					}
				}
				if removed {
					remove()
				}
				want := usage.Bucket{Sessions: 1, UserMessages: 1, AssistantMessages: 1}
				wantUsed(t, s, "before the turn ends", want)
				want.Completed, want.PromptTokens, want.CompletionTokens = 1, 17, 5
				for range 2 {
					_, err := s.EndTurn(t.Context(), begun.Key, completed("late"), conversation.Timing{})
					if !errors.Is(err, conversation.ErrSessionNotFound) {
						t.Errorf("EndTurn: error %v", err)
					}
					wantUsed(t, s, "after the turn has ended", want)
				}
				if !removed {
					remove()
				}
				if _, err := s.EndTurn(t.Context(), begun.Key, completed("late"), conversation.Timing{}); !errors.Is(err, conversation.ErrSessionNotFound) {
					t.Errorf("EndTurn: error %v", err)
				}
				wantUsed(t, s, "after the removal of the session", want)
				if n := countKeys(t, s, unsettledBucket); n != 0 {
					t.Errorf("%d turns are left in unsettledBucket", n)
				}
				verify(t, s)
			})
		})
	}
}

func TestUsage_Orphans_SettledOnce(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	alive, expired := newSession(t, s), newSession(t, s)
	deletedBefore, deletedAfter := newSession(t, s), newSession(t, s)
	var prompt int64
	for _, session := range []conversation.Session{alive, expired, deletedBefore, deletedAfter} {
		begun := beginTurn(t, s, session.ID, "hello")
		journalText(t, s, begun.Key, 0, "some text")
		prompt += int64(begun.Session.HistoryTokens + window.PromptOverhead)
	}
	_, err := s.DeleteSession(t.Context(), somebody, deletedBefore.ID)
	must(t, err)
	closeStore(t, s)

	s = open(t, path)
	_, err = s.DeleteSession(t.Context(), somebody, deletedAfter.ID)
	must(t, err)
	expire(t, s, expired)
	mine := beginTurn(t, s, newSession(t, s).ID, "of this process")
	_, err = s.DeleteSession(t.Context(), somebody, mine.Session.ID)
	must(t, err)
	for _, want := range []int{4, 0} {
		n, err := s.EndOrphans(t.Context(), func(text string) int { return len(text) })
		if must(t, err); n != want {
			t.Errorf("EndOrphans ended %d orphans, want %d", n, want)
		}
		wantUsed(t, s, "the usage", usage.Bucket{ // the text of deleted sessions is not counted
			Sessions: 5, UserMessages: 5, AssistantMessages: 5, Interrupted: 4, PromptTokens: prompt,
			CompletionTokens: int64(2 * len("some text")),
		})
	}
	closeStore(t, s)
	s = open(t, path)
	if n, err := s.EndOrphans(t.Context(), func(string) int { return 0 }); n != 1 || err != nil {
		t.Errorf("EndOrphans ended %d turns of the second process, want 1; error %v", n, err)
	}
	if n := countKeys(t, s, unsettledBucket); n != 0 {
		t.Errorf("%d turns are left in unsettledBucket", n)
	}
}

func TestUsage_OldBuckets_Removed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		now := usage.HourOf(time.Now().UnixMilli())
		must(t, s.submit(t.Context(), func(w *writing) error {
			for i := range 30 {
				owner := conversation.Owner{Account: fmt.Sprint("account ", i), Mode: conversation.Live}
				for hour := range usage.Hour(300) {
					if err := w.count(owner, now+hour, usage.Bucket{Requests: 1}); err != nil {
						return err
					}
				}
			}
			return nil
		}))
		removeAt := func(hours, want int) {
			t.Helper()
			_, _, err := s.RemoveExpired(t.Context())
			must(t, err)
			if n := countKeys(t, s, usageBucket); n != want {
				t.Errorf("after %d hours %d buckets are left, want %d", hours, n, want)
			}
		}
		removeAt(0, 30*300)
		time.Sleep(usage.RetentionHours * time.Hour)
		removeAt(usage.RetentionHours, 30*300)
		time.Sleep(10 * time.Hour)
		removeAt(usage.RetentionHours+10, 30*290)
		time.Sleep(280 * time.Hour) // the removal takes more than one transaction
		removeAt(usage.RetentionHours+290, 30*10)
		time.Sleep(1000 * time.Hour)
		removeAt(usage.RetentionHours+1290, 0)
		verify(t, s)
	})
}

// One operation of a batch fails after it has written, so the committer runs the other operations again.
func TestUsage_RolledBackOperation_NotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		release := hold(t, s)
		var writers sync.WaitGroup
		writers.Go(func() { newSession(t, s) })
		synctest.Wait()
		broke := errors.New("no more")
		writers.Go(func() {
			err := s.submit(t.Context(), func(w *writing) error {
				return errors.Join(w.count(somebody, momentHour(w.now), usage.Bucket{Requests: 100}), broke)
			})
			if !errors.Is(err, broke) {
				t.Errorf("error %v", err)
			}
		})
		synctest.Wait()
		writers.Go(func() { newSession(t, s) })
		synctest.Wait()
		release()
		writers.Wait()
		wantUsed(t, s, "the usage", usage.Bucket{Sessions: 2})
	})
}

// admitted admits the given number of requests with the configured admin key, for the owner somebody.
func admitted(t testing.TB, s *Store, times int) {
	t.Helper()
	for range times {
		must(t, s.Admit(auth.WithAdmission(t.Context(), &auth.Admission{
			Principal: auth.Principal{Account: somebody.Account, Mode: string(somebody.Mode)},
			Limits:    limit.TierLimits{RequestsPerMinute: 1000, TokensPerMinute: 1000},
		})))
	}
}

func TestUsage_Requests_DurableWithinASecond(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		inFile := func(when string, commits int, want int64) {
			t.Helper()
			synctest.Wait()
			must(t, s.view(t.Context(), func(r *reading) error {
				hours, err := r.usage(somebody, 0, 1<<30)
				var sum usage.Bucket
				for i := range hours {
					sum.Add(&hours[i].Bucket)
				}
				if id := r.bolt.ID(); sum.Requests != want || id != commits {
					t.Errorf("%s: the file has %d requests, after transaction %d; want %d, after %d", when, sum.Requests, id, want, commits)
				}
				return err
			}))
		}
		before := transaction(t, s)
		admitted(t, s, 5)
		inFile("immediately", before, 0)
		time.Sleep(countEvery)
		inFile("a second later", before+1, 5)
		time.Sleep(time.Hour)
		inFile("an hour later, without requests", before+1, 5)
		admitted(t, s, 2)
		newSession(t, s)
		inFile("after the commit of another write", before+2, 7)
		time.Sleep(time.Hour)
		inFile("an hour after that commit", before+2, 7)
		admitted(t, s, 3)
		wantUsed(t, s, "the usage", usage.Bucket{Sessions: 1, Requests: 10})
		admitted(t, s, 4)
		closeStore(t, s)
	})
	s := open(t, path)
	hours := make(map[usage.Hour]int64)
	must(t, s.view(t.Context(), func(r *reading) error {
		all, err := r.usage(somebody, 0, 1<<30)
		for _, h := range all {
			hours[h.Hour] += h.Bucket.Requests
		}
		return err
	}))
	if first := usage.HourOf(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()); !maps.Equal(hours, map[usage.Hour]int64{first: 5, first + 1: 2, first + 2: 7}) {
		t.Errorf("after Close and Open: %v", hours)
	}
}

// The commit that counts the requests fails. The next commit must count them, once.
func TestUsage_FailedCommit_NextCountsRequestsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		release := hold(t, s)
		admitted(t, s, 5)
		var writers sync.WaitGroup
		writers.Go(func() {
			if err := s.submit(t.Context(), func(w *writing) error {
				w.wrote = true
				w.store.limits.take(w.requests) // as putTally does
				panic("then bbolt fails")
			}); err == nil {
				t.Error("the operation that panicked succeeded")
			}
		})
		synctest.Wait()
		release()
		writers.Wait()
		admitted(t, s, 1)
		wantUsed(t, s, "the usage", usage.Bucket{Requests: 6})
	})
}

func TestReadUsage_Truncated_Error(t *testing.T) {
	t.Parallel()
	whole := appendUsage(nil, &usage.Bucket{Sessions: 300, Requests: 5})
	for n := range whole[:len(whole)-1] {
		var b usage.Bucket
		if err := readUsage(whole[:n], &b); err == nil && n != 0 && n != 3 {
			t.Errorf("the first %d bytes of %v are decoded as %+v, want an error", n, whole, b)
		}
	}
}

// The account is busy in every hour of a year. BenchmarkUsage measures the time of a report.
func TestUsage_YearOfHours_SizeBounded(t *testing.T) {
	t.Parallel()
	const year = 365 * 24
	s := open(t, newPath(t))
	random := rand.New(rand.NewPCG(1, 2))
	busy := make([]usage.Bucket, 100) // making each of the 8,760 hours from 200 turns would take seconds
	for i := range busy {
		b := usage.Bucket{Sessions: 40, SessionTime: 9_000_000, UserMessages: 200, AssistantMessages: 200, Requests: 900}
		for range 200 {
			reply := conversation.Message{Status: stream.Completed, Usage: &conversation.Usage{Prompt: 1500, Completion: 250}}
			first := time.Duration(200+300*random.ExpFloat64()) * time.Millisecond
			b.Add(new(conversation.UsageOfTurnEnd(&reply, conversation.Timing{FirstToken: first, Duration: 10 * first})))
		}
		busy[i] = b
	}
	now := usage.HourOf(time.Now().UnixMilli())
	size := 0
	must(t, s.submit(t.Context(), func(w *writing) error {
		for hour := range usage.Hour(year) {
			b := busy[random.IntN(len(busy))]
			size += len(appendUsage(nil, &b))
			if err := w.count(somebody, now-hour, b); err != nil {
				return err
			}
		}
		return nil
	}))
	inFile := 0
	must(t, s.view(t.Context(), func(r *reading) error {
		stats := r.bucket(usageBucket).Stats()
		inFile = stats.LeafAlloc + stats.BranchAlloc
		return nil
	}))
	used, err := s.Usage(t.Context(), somebody, now-year+1, now+1)
	must(t, err)
	series := usage.Series(used.Hours, now-year+1, now+1, usage.ByHour)
	figures := usage.MetricsOf(used.Hours)
	if len(used.Hours) != year || len(series) != year || figures.Messages.Total != 400*year {
		t.Errorf("%d hours, a series of %d, figures %+v", len(used.Hours), len(series), figures)
	}
	if size > 200*year || inFile > 4*size { // an hour takes about 150 bytes (appendUsage); bbolt pages add to that
		t.Errorf("an hour takes %d bytes, and the year takes %.1f MiB of the file", size/year, float64(inFile)/(1<<20))
	}
}
