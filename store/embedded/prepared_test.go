package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"parley/conversation"
)

// The batch runs twice, because another operation fails after it has written.
func TestPrepared_BatchRunsTwice_OneCallBeforeCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		session := newSession(t, s)
		var reported []conversation.TurnStart
		turn := newTurn(session.ID, "hello")
		turn.Prepared = func(begun conversation.TurnStart) {
			reported = append(reported, begun)
			if stored, err := s.Session(context.Background(), somebody, session.ID); stored.LiveReply != "" || err != nil {
				t.Errorf("at the call of Prepared, a reader sees the live reply %q, error %v", stored.LiveReply, err)
			}
		}
		release := hold(t, s)
		var begun conversation.TurnStart
		var writers sync.WaitGroup
		writers.Go(func() {
			var err error
			if begun, err = s.BeginTurn(context.Background(), somebody, turn); err != nil {
				t.Errorf("BeginTurn: %v", err)
			}
		})
		synctest.Wait()
		writers.Go(func() {
			_ = s.submit(context.Background(), func(w *writing) error {
				return errors.Join(w.put(metaBucket, []byte("spoiled"), []byte("yes")), errors.New("its own"))
			})
		})
		synctest.Wait()
		release()
		writers.Wait()
		if len(reported) != 1 || reported[0].Key != begun.Key || reported[0].Message.Content != "hello" {
			t.Errorf("%d calls of Prepared, want one with the key %+v", len(reported), begun.Key)
		}
		verify(t, s)
	})
}

// The commit fails because the file cannot grow. Then the operation runs again, as after a commit on a full disk.
func TestPrepared_OperationRunsAgain_OneCall(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session := newSession(t, s)
	calls := 0
	turn := newTurn(session.ID, strings.Repeat("too large for the disk ", 100_000))
	turn.Prepared = func(conversation.TurnStart) { calls++ }
	begin := func() error {
		return s.submit(t.Context(), func(w *writing) error {
			_, err := w.beginTurn(t.Context(), ref{somebody, session.ID}, &turn, &reservation{})
			return err
		})
	}
	s.db.MaxSize = 1
	if err := begin(); !errors.Is(err, conversation.ErrUnavailable) || calls != 1 {
		t.Errorf("the failed commit: error %v, %d calls of Prepared", err, calls)
	}
	s.db.MaxSize = 0
	if err := begin(); err != nil || calls != 1 {
		t.Errorf("after the second attempt: error %v, %d calls of Prepared, want 1", err, calls)
	}
	verify(t, s)
}

func TestPrepared_SendRefusedOrQueued_NoCall(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session := newSession(t, s)
	beginTurn(t, s, session.ID, "hello")
	for _, onBusy := range []conversation.OnBusy{conversation.Enqueue, conversation.Reject} {
		turn := newTurn(session.ID, "later")
		turn.OnBusy = onBusy
		turn.Prepared = func(conversation.TurnStart) { t.Errorf("%s: Prepared was called", onBusy) }
		if begun, err := s.BeginTurn(t.Context(), somebody, turn); begun.Queued == nil && !errors.Is(err, conversation.ErrSessionBusy) {
			t.Errorf("%s: %+v, error %v", onBusy, begun, err)
		}
	}
}
