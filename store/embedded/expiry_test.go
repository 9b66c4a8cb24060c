package embedded

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/conversation"
)

func TestRemoveExpired_AfterADay_RemovesSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		first := newSession(t, s)
		begun := beginTurn(t, s, first.ID, "hello")
		waiting, err := s.BeginTurn(t.Context(), somebody, newTurn(first.ID, "waiting"))
		must(t, err)
		time.Sleep(time.Hour)
		second := newSession(t, s)
		live := beginTurn(t, s, second.ID, "hello")

		time.Sleep(23*time.Hour - time.Millisecond)
		removed, next, err := s.RemoveExpired(t.Context())
		if len(removed) != 0 || next != first.ExpiresAt || err != nil {
			t.Errorf("RemoveExpired, a millisecond before the expiry: %v, %v, %v", removed, next, err)
		}
		current, err := s.Session(t.Context(), somebody, first.ID)
		must(t, err)
		time.Sleep(time.Millisecond)
		wantExpired(t, s, begun)
		page, err := s.Sessions(t.Context(), somebody, conversation.SessionQuery{Limit: 10})
		must(t, err)
		if len(page.Sessions) != 1 || page.Sessions[0].ID != second.ID || page.More {
			t.Errorf("the sessions are %+v", page)
		}
		select {
		case <-waiting.Queued.Granted:
			t.Error("the waiter was woken before the session was removed")
		default:
		}
		removed, next, err = s.RemoveExpired(t.Context())
		must(t, err)
		if diff := cmp.Diff([]conversation.OwnedSession{{Owner: somebody, Session: current}}, removed); diff != "" || next != second.ExpiresAt {
			t.Errorf("the removed sessions; the next one expires at %v (-want +got):\n%s", next, diff)
		}
		<-waiting.Queued.Granted
		wantExpired(t, s, begun)
		verify(t, s)
		journalText(t, s, live.Key, 0, "still here")
		time.Sleep(48 * time.Hour)
		if removed, next, err = s.RemoveExpired(t.Context()); len(removed) != 1 || next != 0 || err != nil {
			t.Errorf("RemoveExpired, after 48 more hours: %v, %v, %v", removed, next, err)
		}
		verify(t, s)
	})
}

func wantExpired(t *testing.T, s *Store, begun conversation.TurnStart) {
	t.Helper()
	id := begun.Session.ID
	_, session := s.Session(t.Context(), somebody, id)
	_, messages := s.Messages(t.Context(), somebody, id, conversation.MessageQuery{Limit: 1})
	_, message := s.Message(t.Context(), somebody, id, begun.Message.ID)
	_, began := s.BeginTurn(t.Context(), somebody, newTurn(id, "late"))
	_, cleared := s.ClearMessages(t.Context(), somebody, id, "late")
	_, ended := s.EndTurn(t.Context(), begun.Key, completed("late"), conversation.Timing{})
	_, deleted := s.DeleteSession(t.Context(), somebody, id)
	for what, err := range map[string]error{
		"Session": session, "Messages": messages, "Message": message, "BeginTurn": began, "ClearMessages": cleared,
		"EndTurn": ended, "DeleteSession": deleted,
	} {
		if !errors.Is(err, conversation.ErrSessionNotFound) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

func TestRemoveExpired_SeveralBatches_RemovesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		for range 3*expiredAtOnce + 1 {
			newSession(t, s)
		}
		time.Sleep(25 * time.Hour)
		removed, next, err := s.RemoveExpired(t.Context())
		if len(removed) != 3*expiredAtOnce+1 || next != 0 || err != nil {
			t.Errorf("%d sessions removed, want %d; the next expires at %v; error %v", len(removed), 3*expiredAtOnce+1, next, err)
		}
		verify(t, s)
	})
}

// expire sets the expiry time of a session to the present.
func expire(t *testing.T, s *Store, session conversation.Session) {
	t.Helper()
	must(t, s.submit(t.Context(), func(w *writing) error {
		at := ref{somebody, session.ID}
		stored, err := w.session(at)
		if err != nil {
			return err
		}
		bytes, err := w.bytesOf(at, stored.MessageCount)
		if err != nil {
			return err
		}
		counted := storedCount{1, bytes + int64(stored.StoredBytes())}
		err = errors.Join(w.delete(expiryBucket, expiryKey(stored.ExpiresAt, at)),
			w.addStored(at.owner, stored.ExpiresAt, storedCount{-counted.sessions, -counted.bytes}))
		stored.ExpiresAt = w.now
		return errors.Join(err, w.addStored(at.owner, stored.ExpiresAt, counted),
			w.put(expiryBucket, expiryKey(stored.ExpiresAt, at), nil), w.putSession(at, &stored))
	}))
}

// TestSessions_ExpiredNotRemoved_NotRead damages an expired session that RemoveExpired has not removed yet. A list that read the
// session would fail.
func TestSessions_ExpiredNotRemoved_NotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		expired := newSession(t, s)
		time.Sleep(time.Minute)
		session := newSession(t, s)
		_, err := update(t.Context(), s, func(w *writing) (struct{}, error) {
			return struct{}{}, w.put(sessionsBucket, ref{somebody, expired.ID}.key(), []byte{0xFF})
		})
		must(t, err)
		time.Sleep(conversation.Lifetime - time.Minute)
		for _, query := range []conversation.SessionQuery{{Limit: 1}, {Limit: 2}, {Limit: 2, UserID: session.UserID}} {
			page, err := s.Sessions(t.Context(), somebody, query)
			must(t, err)
			if diff := cmp.Diff(conversation.SessionPage{Sessions: []conversation.Session{session}}, page); diff != "" {
				t.Errorf("the page for %+v (-want +got):\n%s", query, diff)
			}
		}
	})
}
