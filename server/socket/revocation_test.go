package socket

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
)

// keyState holds the result of Revalidate by the key's id. A key without an error works.
type keyState struct {
	checks atomic.Int64
	err    map[string]error
}

func (s *keyState) revalidate(_ context.Context, p auth.Principal) error {
	s.checks.Add(1)
	return s.err[p.KeyID]
}

func TestRevocationMonitor_EndsOnlyRevokedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &keyState{err: map[string]error{"revoked": auth.ErrInvalidToken, "unknown": errors.New("the store is unreachable")}}
		m := NewRevocationMonitor(state.revalidate)
		ended := map[string]int{}
		var releases []func()
		for _, key := range []string{"works", "revoked", "revoked", "unknown"} {
			releases = append(releases, m.Watch(auth.Principal{KeyID: key}, func() { ended[key]++ }))
		}
		time.Sleep(time.Second) // connections must end within a second
		synctest.Wait()
		if len(ended) != 1 || ended["revoked"] != 2 {
			t.Errorf("ended connections by key: %v, want 2 of the key revoked", ended)
		}
		if n, want := state.checks.Load(), int64(3*(time.Second/revocationInterval)); n != want {
			t.Errorf("%d checks of 3 keys, want %d", n, want)
		}
		for _, release := range releases {
			release()
		}
		checks := state.checks.Load()
		time.Sleep(time.Hour) // no connection is watched, so no check runs
		if state.checks.Load() != checks {
			t.Error("keys are checked although no connection is watched")
		}
	})
}

func TestRevocationMonitor_WatchAfterRelease_ChecksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &keyState{}
		m := NewRevocationMonitor(state.revalidate)
		m.Watch(auth.Principal{KeyID: "k"}, func() { t.Error("end was called for a released connection") })()
		state.err = map[string]error{"k": auth.ErrInvalidToken}
		ended := make(chan struct{})
		defer m.Watch(auth.Principal{KeyID: "k"}, func() { close(ended) })()
		<-ended
	})
}

func TestRevocationMonitor_StoreDoesNotRespond_ReleaseReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		responds := make(chan struct{})
		m := NewRevocationMonitor(func(context.Context, auth.Principal) error { <-responds; return nil })
		release := m.Watch(auth.Principal{KeyID: "k"}, func() { t.Error("end was called") })
		time.Sleep(revocationInterval)
		synctest.Wait() // the check has begun
		from := time.Now()
		release()
		if waited := time.Since(from); waited > 0 {
			t.Errorf("release took %v", waited)
		}
		close(responds)
	})
}
