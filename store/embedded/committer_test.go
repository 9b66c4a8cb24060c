package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"parley/conversation"
	"parley/stream"
)

// hold blocks the committer until release is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	must(t, s.Scrubbed(t.Context())) // a scrubber that waits for a mutex would block synctest.Wait
	held := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.submit(context.Background(), func(*writing) error {
			<-held
			return nil
		}); err != nil {
			t.Errorf("holding the committer: %v", err)
		}
	})
	synctest.Wait()
	return func() {
		close(held)
		done.Wait()
	}
}

func TestCommitter_WaitingOperations_OneCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		before := transaction(t, s)
		release := hold(t, s)
		var writers sync.WaitGroup
		for range 100 {
			writers.Go(func() { newSession(t, s) })
		}
		synctest.Wait()
		release()
		writers.Wait()
		if n := transaction(t, s) - before; n != 1 {
			t.Errorf("%d commits, want 1", n)
		}
		verify(t, s)
	})
}

func TestCommitter_NothingWritten_NoCommit(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session := newSession(t, s)
	beginTurn(t, s, session.ID, "hello")
	before := transaction(t, s)
	turn := newTurn(session.ID, "waiting")
	_, err := s.BeginTurn(t.Context(), somebody, turn)
	must(t, err)
	must(t, s.LeaveQueue(t.Context(), somebody, session.ID, turn.Waiter))
	_, _, err = s.RemoveExpired(t.Context())
	must(t, err)
	if n := transaction(t, s) - before; n != 0 {
		t.Errorf("%d commits, want 0", n)
	}
}

func TestCommitter_ContextEndsBeforeRun_NothingWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		session := newSession(t, s)
		release := hold(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		writers.Go(func() {
			if _, err := s.BeginTurn(ctx, somebody, newTurn(session.ID, "given up")); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
		synctest.Wait()
		cancel()
		writers.Wait() // while the committer is still held
		release()
		beginTurn(t, s, session.ID, "another")
		verify(t, s)
	})
}

func TestCommitter_ContextEndsWhileRunning_WriteSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		must(t, s.Scrubbed(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		held := make(chan struct{})
		var err error
		var writer sync.WaitGroup
		writer.Go(func() {
			err = s.submit(ctx, func(w *writing) error {
				<-held
				return w.put(metaBucket, []byte("taken"), []byte("yes"))
			})
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(held)
		writer.Wait()
		if err != nil {
			t.Errorf("the operation was written, but returned %v", err)
		}
	})
}

func TestClose_SubmittedWrites_AreCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		s := open(t, path)
		release := hold(t, s)
		var writers sync.WaitGroup
		for range 10 {
			writers.Go(func() { newSession(t, s) })
		}
		synctest.Wait()
		writers.Go(func() { closeStore(t, s) })
		synctest.Wait()
		release()
		writers.Wait()
		s = open(t, path)
		page, err := s.Sessions(t.Context(), somebody, conversation.SessionQuery{Limit: 100})
		if len(page.Sessions) != 10 || err != nil {
			t.Errorf("%d sessions, error %v", len(page.Sessions), err)
		}
	})
}

// In a batch of four operations, the second panics and the third fails. Both operations have written before.
func TestCommitter_FailingOperation_OthersSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		session := newSession(t, s)
		begun := beginTurn(t, s, session.ID, "hello")
		waiting, err := s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "waiting"))
		must(t, err)
		errOwn := errors.New("its own")
		release := hold(t, s)
		var writers sync.WaitGroup
		spoil := func(fail func() error) error {
			return s.submit(context.Background(), func(w *writing) error {
				at := ref{somebody, session.ID}
				w.dissolve(at)
				busy, err := w.session(at)
				_, err2 := w.removeMessages(at, &busy)
				return errors.Join(err, err2, fail())
			})
		}
		var failed, panicked error
		writers.Go(func() { newSession(t, s) })
		synctest.Wait()
		writers.Go(func() { panicked = spoil(func() error { panic("boo") }) })
		synctest.Wait()
		writers.Go(func() { failed = spoil(func() error { return errOwn }) })
		synctest.Wait()
		writers.Go(func() {
			if _, err := s.EndTurn(context.Background(), begun.Key, completed("good day"), conversation.Timing{}); err != nil {
				t.Errorf("EndTurn: %v", err)
			}
		})
		synctest.Wait()
		release()
		writers.Wait()
		if panicked == nil || !strings.Contains(panicked.Error(), "boo") {
			t.Errorf("the operation that panicked returned %v", panicked)
		}
		if !errors.Is(failed, errOwn) {
			t.Errorf("the operation that failed returned %v", failed)
		}
		<-waiting.Queued.Granted
		if got := beginTurnWith(t, s, session.ID, "no").Queued; got == nil {
			t.Error("the session is not reserved for the granted waiter")
		}
		verify(t, s)
	})
}

func beginTurnWith(t *testing.T, s *Store, sessionID, waiter string) conversation.TurnStart {
	t.Helper()
	turn := newTurn(sessionID, waiter)
	turn.Waiter = waiter
	begun, err := s.BeginTurn(t.Context(), somebody, turn)
	must(t, err)
	return begun
}

// The commit fails because the file cannot grow, as on a full disk.
func TestCommitter_FailedCommit_ChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		busy, free := newSession(t, s), newSession(t, s)
		begun := beginTurn(t, s, busy.ID, "hello")
		journalText(t, s, begun.Key, 0, "some text")
		first := beginTurnWith(t, s, busy.ID, "first")
		before, err := s.Sessions(t.Context(), somebody, conversation.SessionQuery{Limit: 10})
		must(t, err)

		release := hold(t, s)
		var writers sync.WaitGroup
		fails := func(what string, call func(context.Context) error) {
			writers.Go(func() {
				if err := call(context.Background()); !errors.Is(err, conversation.ErrUnavailable) {
					t.Errorf("%s: error %v", what, err)
				}
			})
			synctest.Wait()
		}
		fails("BeginTurn of a second waiter", func(ctx context.Context) error {
			turn := newTurn(busy.ID, "second")
			turn.Waiter = "second"
			got, err := s.BeginTurn(ctx, somebody, turn)
			if got.Queued != nil {
				t.Error("the waiter is queued despite the error")
			}
			return err
		})
		fails("EndTurn", func(ctx context.Context) error {
			got, err := s.EndTurn(ctx, begun.Key, completed("good day"), conversation.Timing{})
			if diff := cmp.Diff(conversation.Message{}, got); diff != "" {
				t.Errorf("EndTurn returned a message despite the error:\n%s", diff)
			}
			return err
		})
		fails("BeginTurn of a large message", func(ctx context.Context) error {
			_, err := s.BeginTurn(ctx, somebody, newTurn(free.ID, strings.Repeat("too large for the disk ", 100_000)))
			return err
		})
		s.db.MaxSize = 1
		release()
		writers.Wait()
		s.db.MaxSize = 0

		after, err := s.Sessions(t.Context(), somebody, conversation.SessionQuery{Limit: 10})
		must(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the sessions (-before +after):\n%s", diff)
		}
		select {
		case <-first.Queued.Granted:
			t.Error("the session was granted to the first waiter")
		default:
		}
		verify(t, s)
		journalText(t, s, begun.Key, 9, " and more")
		m, err := s.Message(t.Context(), somebody, busy.ID, begun.Reply.ID)
		if m.Content != "some text and more" || err != nil {
			t.Errorf("the live text is %q, error %v", m.Content, err)
		}
		if err := s.Ping(t.Context()); !errors.Is(err, conversation.ErrStoreFailed) {
			t.Errorf("Ping after a failed commit: error %v", err)
		}
		// The next operations succeed.
		beginTurn(t, s, free.ID, "again")
		_, err = s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
		must(t, err)
		<-first.Queued.Granted
		if beginTurnWith(t, s, busy.ID, "second").Queued == nil {
			t.Error("the session is reserved for the waiter of the failed call")
		}
		if beginTurnWith(t, s, busy.ID, "first").Queued != nil {
			t.Error("the session is not reserved for the first waiter")
		}
		must(t, s.Ping(t.Context()))
		verify(t, s)
	})
}

func TestCommitter_FailedMetaSync_LaterWritesRefused(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session := newSession(t, s)
	_ = s.fail(transaction(t, s)+1, errors.New("a page could not be written"))
	newSession(t, s) // the failed commit is not visible, so the store still accepts writes
	_ = s.fail(transaction(t, s), errors.New("the sync failed"))
	_, err := s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "hello"))
	for what, err := range map[string]error{"BeginTurn": err, "Ping": s.Ping(t.Context())} {
		if !errors.Is(err, conversation.ErrUnavailable) || !strings.Contains(err.Error(), "the sync failed") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	_, err = s.Session(t.Context(), somebody, session.ID)
	must(t, err)
}

func TestEndTurn_ReplyStillStreaming_Refused(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	for _, state := range []stream.State{"", stream.Streaming} {
		if _, err := s.EndTurn(t.Context(), begun.Key, conversation.Message{Status: state}, conversation.Timing{}); err == nil {
			t.Errorf("EndTurn accepted a reply with the status %q", state)
		}
	}
	verify(t, s)
}
