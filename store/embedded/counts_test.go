package embedded

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"parley/conversation"
)

// syncsOfCommit is the number of calls of fdatasync in one commit of bbolt: one for the pages, and one for the meta page.
const syncsOfCommit = 2

// One turn alone has two commits, so 64 callers without group commit would need four syncs a turn. With several cores, a batch
// may miss some callers, so the test tries up to five times.
func TestTurn_64Callers_AtMostOneSyncPerFiveTurns(t *testing.T) {
	const callers, turns, maxSyncs = 64, 10, 0.2
	for _, cores := range []int{1, 2} {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", cores), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			s := open(t, newPath(t))
			least := math.Inf(1)
			for round := 0; round < 5 && least > maxSyncs; round++ {
				least = min(least, syncsOfCommit*float64(commitsOf(t, s, callers, turns))/(callers*turns))
			}
			t.Logf("%.3f syncs a turn", least)
			if least > maxSyncs {
				t.Errorf("%.3f syncs a turn, want at most %.1f", least, maxSyncs)
			}
		})
	}
}

// commitsOf returns the number of commits while callers run turns at the same time. Each caller has its own session, and begins
// a turn as soon as its last turn has ended.
func commitsOf(t *testing.T, s *Store, callers, turns int) int {
	t.Helper()
	sessions := make([]string, callers)
	for i := range sessions {
		sessions[i] = newSession(t, s).ID
	}
	before := transaction(t, s)
	var working sync.WaitGroup
	for _, id := range sessions {
		working.Go(func() {
			for range turns {
				begun, err := s.BeginTurn(t.Context(), somebody, newTurn(id, "hello"))
				if err == nil {
					_, err = s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	return transaction(t, s) - before
}

func TestTurn_OneCaller_TwoCommits(t *testing.T) {
	s := open(t, newPath(t))
	const turns = 3
	if n := commitsOf(t, s, 1, turns); n != 2*turns {
		t.Errorf("%d commits for %d turns, want %d", n, turns, 2*turns)
	}
}
