package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/window"
	"parley/store/storetest"
	"parley/stream"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		os.Exit(crashChild(path))
	}
	goleak.VerifyTestMain(m)
}

// open opens a store until the end of the test. Nothing is synced and nothing waits for a time of day.
func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{noSync: true, scrubInterval: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "parley.db") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newSession(t testing.TB, s *Store) conversation.Session {
	t.Helper()
	made, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{
		UserID: conversation.UserPrefix + conversation.RandomText(16), Context: conversation.DefaultContextConfig,
	})
	must(t, err)
	return made.Session
}

func newTurn(sessionID, content string) conversation.NewTurn {
	return conversation.NewTurn{
		SessionID: sessionID, Role: conversation.User, Content: content, Tokens: 10, OnBusy: conversation.Enqueue,
		Waiter: conversation.RandomText(16),
	}
}

func beginTurn(t testing.TB, s *Store, sessionID, content string) conversation.TurnStart {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), somebody, newTurn(sessionID, content))
	must(t, err)
	if begun.Queued != nil {
		t.Fatal("the session is busy")
	}
	return begun
}

func completed(content string) conversation.Message {
	return conversation.Message{
		Content: content, Tokens: 5, Status: stream.Completed,
		Usage: &conversation.Usage{Prompt: 17, Completion: 5, Total: 22},
	}
}

func journalText(t testing.TB, s *Store, key conversation.TurnKey, offset int, text string) {
	t.Helper()
	must(t, s.Journal(context.Background(), []stream.Segment[conversation.TurnKey]{{Key: key, Offset: offset, Text: []byte(text)}}))
}

// verify checks that everything in the file agrees with everything else in it, and bbolt with itself.
func TestTheStoreConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		s := open(t, newPath(t))
		t.Cleanup(func() { verify(t, s) })
		return storetest.Backend{Conversation: s, Keys: s, Tickets: auth.NewTicketMemory()}
	})
}

func TestTheFilesAreTheOwnersAlone(t *testing.T) {
	path := newPath(t)
	open(t, path)
	for _, name := range []string{path, path + "-journal"} {
		info, err := os.Stat(name)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func TestAFileInUseIsSaidToBe(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "some text")
	synctest.Test(t, func(t *testing.T) { // the wait passes at once
		start := time.Now()
		_, err := Open(path, Options{})
		if err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(start); waited > 1500*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
	journalText(t, s, begun.Key, 9, " and more")
	closeStore(t, s)
	s = open(t, path)
	text, _ := s.journal.text(begun.Reply.ID)
	if text != "some text and more" {
		t.Errorf("the text is %q: the other process touched the journal", text)
	}
}

func TestAFileOfAnotherSchemaIsNotTouched(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	must(t, s.submit(t.Context(), func(w *writing) error {
		return w.put(metaBucket, []byte(schemaKey), []byte("99"))
	}))
	closeStore(t, s)
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), `"99"`) {
		t.Errorf("error %v", err)
	}
}

func TestAStoreThatIsClosedSaysSo(t *testing.T) {
	s := open(t, newPath(t))
	session := newSession(t, s)
	closeStore(t, s)
	_, read := s.Session(t.Context(), somebody, session.ID)
	_, written := s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "hello"))
	for what, err := range map[string]error{"Session": read, "BeginTurn": written, "Ping": s.Ping(t.Context())} {
		if !errors.Is(err, conversation.ErrUnavailable) {
			t.Errorf("%s: error %v", what, err)
		}
	}
}

func TestWhatWasWrittenIsThereWhenTheFileIsOpenedAgain(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	session := newSession(t, s)
	first := beginTurn(t, s, session.ID, "hello")
	_, err := s.EndTurn(t.Context(), first.Key, completed("good day"), conversation.Timing{})
	must(t, err)
	second := beginTurn(t, s, session.ID, "and now?")
	want, err := s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Limit: 10})
	must(t, err)
	closeStore(t, s)

	s = open(t, path)
	got, err := s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Limit: 10})
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the history (-before +after):\n%s", diff)
	}
	verify(t, s)
	// The clock of ids goes on where it was.
	third, err := s.EndTurn(t.Context(), second.Key, completed("now"), conversation.Timing{})
	must(t, err)
	if next := beginTurn(t, s, session.ID, "later"); next.Message.ID <= third.ID || next.Key.Fence != 3 {
		t.Errorf("the next turn is %+v", next.Key)
	}
}

func TestOrphansAreEndedOnceWithTheirText(t *testing.T) {
	path := newPath(t)
	s := open(t, path)
	answered, silent, deleted, expired := newSession(t, s), newSession(t, s), newSession(t, s), newSession(t, s)
	first := beginTurn(t, s, answered.ID, "hello")
	_, err := s.EndTurn(t.Context(), first.Key, completed("good day"), conversation.Timing{})
	must(t, err)
	live := beginTurn(t, s, answered.ID, "go on")
	quiet := beginTurn(t, s, silent.ID, "say nothing")
	beginTurn(t, s, deleted.ID, "delete me")
	beginTurn(t, s, expired.ID, "too late")
	journalText(t, s, live.Key, 0, "I was sáyi")
	closeStore(t, s)

	s = open(t, path)
	streaming, err := s.Message(t.Context(), somebody, answered.ID, live.Reply.ID)
	must(t, err)
	if streaming.Status != stream.Streaming || streaming.Content != "I was sáyi" {
		t.Errorf("before EndOrphans the reply is %+v", streaming)
	}
	_, err = s.DeleteSession(t.Context(), somebody, deleted.ID)
	must(t, err)
	expire(t, s, expired)
	n, err := s.EndOrphans(t.Context(), func(text string) int { return len(text) })
	must(t, err)
	if n != 4 {
		t.Errorf("%d orphans, want 4, two of them without a session", n)
	}
	prompt := live.Session.HistoryTokens + window.PromptOverhead
	want := live.Reply
	want.Content, want.Tokens, want.Status = "I was sáyi", 11, stream.Interrupted
	want.Usage = &conversation.Usage{Prompt: prompt, Completion: 11, Total: prompt + 11, Estimated: true}
	got, err := s.Message(t.Context(), somebody, answered.ID, live.Reply.ID)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the reply (-want +got):\n%s", diff)
	}
	session, err := s.Session(t.Context(), somebody, answered.ID)
	must(t, err)
	if usage := (conversation.TokenUsage{Prompt: 17 + prompt, Completion: 16, Total: 33 + prompt}); session.TokenUsage != usage || session.LiveReply != "" {
		t.Errorf("the session is %+v, want the usage %+v", session, usage)
	}
	if _, err := s.EndTurn(t.Context(), quiet.Key, completed("late"), conversation.Timing{}); !errors.Is(err, conversation.ErrFenced) {
		t.Errorf("a late EndTurn: error %v", err)
	}
	if n, err := s.EndOrphans(t.Context(), func(string) int { return 0 }); n != 0 || err != nil {
		t.Errorf("the second EndOrphans: %d, %v", n, err)
	}
	beginTurn(t, s, answered.ID, "and on")
	verify(t, s)
}

// expire moves a session's expiry into the past.
func expire(t *testing.T, s *Store, session conversation.Session) {
	t.Helper()
	must(t, s.submit(t.Context(), func(w *writing) error {
		at := ref{somebody, session.ID}
		stored, err := w.session(at)
		if err != nil {
			return err
		}
		err = w.delete(expiryBucket, expiryKey(stored.ExpiresAt, at))
		stored.ExpiresAt = w.now
		return errors.Join(err, w.put(expiryBucket, expiryKey(stored.ExpiresAt, at), nil), w.putSession(at, &stored))
	}))
}

// TestAReplyThatEndsBetweenTwoLooksIsReadAgain has the file show a reply as streaming that the journal no longer knows.
func TestAReplyThatEndsBetweenTwoLooksIsReadAgain(t *testing.T) {
	s := open(t, newPath(t))
	looks := 0
	must(t, s.withText(func() (*conversation.Message, error) {
		if looks++; looks > 1 {
			return nil, nil // it has ended
		}
		return &conversation.Message{ID: "msg_0000000000000000"}, nil
	}))
	if looks != 2 {
		t.Errorf("the file was looked at %d times", looks)
	}
}

func TestASessionExpiresAfterADay(t *testing.T) {
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
			t.Errorf("a millisecond before: %v, %v, %v", removed, next, err)
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
			t.Error("the queue was granted before the session was removed")
		default:
		}
		removed, next, err = s.RemoveExpired(t.Context())
		must(t, err)
		if diff := cmp.Diff([]conversation.OwnedSession{{Owner: somebody, Session: current}}, removed); diff != "" || next != second.ExpiresAt {
			t.Errorf("removed, with the next at %v (-want +got):\n%s", next, diff)
		}
		<-waiting.Queued.Granted
		wantExpired(t, s, begun)
		verify(t, s)
		journalText(t, s, live.Key, 0, "still here")
		time.Sleep(48 * time.Hour)
		if removed, next, err = s.RemoveExpired(t.Context()); len(removed) != 1 || next != 0 || err != nil {
			t.Errorf("at last: %v, %v, %v", removed, next, err)
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

func TestManySessionsThatExpireAtOnceAreAllRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		for range 3*expiredAtOnce + 1 {
			newSession(t, s)
		}
		time.Sleep(25 * time.Hour)
		removed, next, err := s.RemoveExpired(t.Context())
		if len(removed) != 3*expiredAtOnce+1 || next != 0 || err != nil {
			t.Errorf("%d removed, next at %v, error %v", len(removed), next, err)
		}
		verify(t, s)
	})
}

func TestTimesAndIdsNeverGoBackWithTheClock(t *testing.T) {
	s := open(t, newPath(t))
	session := newSession(t, s)
	ahead := session.CreatedAt.Add(time.Hour)
	must(t, s.submit(t.Context(), func(w *writing) error { // as if the clock had been an hour ahead
		at := ref{somebody, session.ID}
		stored, err := w.session(at)
		stored.LastActivity, stored.Head = ahead, conversation.NewID(conversation.MessagePrefix, ahead, "")
		session = stored
		return errors.Join(err, w.putSession(at, &stored))
	}))
	begun := beginTurn(t, s, session.ID, "hello")
	if begun.Message.CreatedAt != ahead || begun.Message.ID <= session.Head || begun.Reply.ID <= begun.Message.ID {
		t.Errorf("the message is %+v, the reply %+v", begun.Message, begun.Reply)
	}
}

// TestTheCostOfATurnDoesNotGrowWithTheHistory counts allocations, which are those of the pages and messages that are read.
func TestTheCostOfATurnDoesNotGrowWithTheHistory(t *testing.T) {
	s := open(t, newPath(t))
	cost := func(messages int) (read, turn float64) {
		session := newSession(t, s)
		at := ref{somebody, session.ID}
		must(t, s.submit(t.Context(), func(w *writing) error {
			stored, err := w.session(at)
			for range messages / 2 {
				asked, reply := messagesOf(&conversation.NewTurn{Role: conversation.User, Content: "hello", Tokens: 50}, &stored, w.now)
				reply.Status, reply.Content, reply.Tokens = stream.Completed, "good day", 50
				stored.Head = reply.ID
				stored.MessageCount += 2
				stored.HistoryTokens += asked.TokensInPrompt() + reply.TokensInPrompt()
				err = errors.Join(err, w.putMessage(at, &asked), w.putMessage(at, &reply))
			}
			return errors.Join(err, w.putSession(at, &stored))
		}))
		middle, err := s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Limit: messages / 2})
		must(t, err)
		from := middle.Messages[len(middle.Messages)-1].ID
		read = testing.AllocsPerRun(20, func() {
			for _, ascending := range []bool{false, true} {
				for _, from := range []string{"", from} {
					_, err := s.Messages(t.Context(), somebody, session.ID,
						conversation.MessageQuery{From: from, Ascending: ascending, Limit: 20})
					must(t, err)
				}
			}
		})
		turn = testing.AllocsPerRun(20, func() {
			begun := beginTurn(t, s, session.ID, "hello")
			_, err := s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
			must(t, err)
		})
		return read, turn
	}
	shortRead, shortTurn := cost(100)
	longRead, longTurn := cost(10_000)
	if longRead > 1.1*shortRead || longTurn > 1.25*shortTurn {
		t.Errorf("of 100 messages: %v allocations a page, %v a turn; of 10,000: %v, %v", shortRead, shortTurn, longRead, longTurn)
	}
	verify(t, s)
}

// transaction returns how many transactions were committed.
func transaction(t *testing.T, s *Store) (id int) {
	t.Helper()
	must(t, s.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}
