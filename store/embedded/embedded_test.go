package embedded

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/storetest"
	"parley/stream"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		os.Exit(crashChild(path))
	}
	if path := os.Getenv(damageEnv); path != "" {
		os.Exit(damageChild(path))
	}
	// A run of TestScrub_RandomOperations_LeaveNoTrace has dozens of steps, so rapid's default of a hundred runs takes long. The
	// command line overrides this value.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// longTime is longer than any time that a test sleeps. A store with this watchInterval never checks its files.
const longTime = 10 * 365 * 24 * time.Hour

// open opens a store and closes it at the end of the test. The store does not sync the file and does not pause between sweeps.
func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{noSync: true, scrubInterval: 1, watchInterval: longTime})
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

func TestStore(t *testing.T) {
	t.Parallel()
	onFile := func(t *testing.T) storetest.Backend {
		s := open(t, newPath(t))
		t.Cleanup(func() { verify(t, s) })
		return storetest.Backend{Conversation: s, Keys: s}
	}
	storetest.Run(t, onFile)
	storetest.RunLong(t, onFile)
}

func TestOpen_FileMode_OwnerOnly(t *testing.T) {
	t.Parallel()
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

func TestOpen_FileReadableByOthers_BecomesOwnerOnly(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	must(t, open(t, path).Close())
	for _, name := range []string{path, path + "-journal"} {
		must(t, os.Chmod(name, 0o644))
	}
	open(t, path)
	for _, name := range []string{path, path + "-journal"} {
		info, err := os.Stat(name)
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func TestOpen_InUse_FailsAfterLockWait(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "some text")
	synctest.Test(t, func(t *testing.T) { // with a fake clock, the wait takes no real time
		start := time.Now()
		_, err := Open(path, Options{})
		if err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(start); waited > 1500*time.Millisecond {
			t.Errorf("Open waited %v, want at most 1.5 s", waited)
		}
	})
	journalText(t, s, begun.Key, 9, " and more")
	closeStore(t, s)
	s = open(t, path)
	text, _ := s.journal.text(begun.Reply.ID)
	if text != "some text and more" {
		t.Errorf("the text is %q: the second Open changed the journal", text)
	}
}

func TestOpen_UnknownSchema_Refused(t *testing.T) {
	t.Parallel()
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

func TestClose_LaterCallsFail(t *testing.T) {
	t.Parallel()
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

func TestOpen_AfterClose_HistoryUnchanged(t *testing.T) {
	t.Parallel()
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
	// New ids are greater than the ids of the last process.
	third, err := s.EndTurn(t.Context(), second.Key, completed("now"), conversation.Timing{})
	must(t, err)
	if next := beginTurn(t, s, session.ID, "later"); next.Message.ID <= third.ID || next.Key.Fence != 3 {
		t.Errorf("the next turn has the key %+v, want a greater id than %s and the fence 3", next.Key, third.ID)
	}
}

func TestEndOrphans_AfterRestart_EachEndsOnceWithText(t *testing.T) {
	t.Parallel()
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

// The first read of the database returns a streaming reply, but the journal no longer has that reply.
func TestWithText_ReplyEndsBetweenReads_ReadsAgain(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	reads := 0
	must(t, s.withText(func() (*conversation.Message, error) {
		if reads++; reads > 1 {
			return nil, nil // the reply has ended
		}
		return &conversation.Message{ID: "msg_0000000000000000"}, nil
	}))
	if reads != 2 {
		t.Errorf("the file was read %d times, want 2", reads)
	}
}

func TestBeginTurn_ClockWentBack_IDsStillIncrease(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session := newSession(t, s)
	ahead := session.CreatedAt.Add(time.Hour)
	must(t, s.submit(t.Context(), func(w *writing) error { // as if the clock had been an hour ahead at the last activity
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

// The test counts allocations. Their number grows with the number of messages that the store reads. It is not parallel, because
// AllocsPerRun forbids parallel tests.
func TestTurn_LongHistory_CostsNoMore(t *testing.T) {
	s := open(t, newPath(t))
	cost := func(policy conversation.RetentionPolicy, messages int) (read, turn float64) {
		session := newSession(t, s)
		at := ref{somebody, session.ID}
		must(t, s.submit(t.Context(), func(w *writing) error {
			stored, err := w.session(at)
			stored.Context = conversation.ContextConfig{MaxTokens: 4096, CompressionEnabled: true, RetentionPolicy: policy}
			for range messages / 2 {
				asked, reply := messagesOf(&conversation.NewTurn{Role: conversation.User, Content: "hello", Tokens: 50}, &stored, w.now)
				reply.Status, reply.Content, reply.Tokens, reply.Terms = stream.Completed, "good day", 50, window.TermsOf("hello, good day")
				stored.Head = reply.ID
				stored.MessageCount += 2
				stored.HistoryTokens += asked.TokensInPrompt() + reply.TokensInPrompt()
				bytes := int64(asked.StoredBytes() + reply.StoredBytes())
				err = errors.Join(err, w.putMessage(at, &asked, stored.MessageCount-1), w.putMessage(at, &reply, stored.MessageCount),
					w.addStored(somebody, stored.ExpiresAt, storedCount{bytes: bytes}),
					w.index(at, &stored, &asked), w.index(at, &stored, &reply))
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
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		shortRead, shortTurn := cost(policy, 200)
		longRead, longTurn := cost(policy, 10_000)
		t.Logf("%s: with 200 messages, %v allocations a page and %v a turn; with 10,000 messages, %v and %v",
			policy, shortRead, shortTurn, longRead, longTurn)
		if longRead > 1.1*shortRead || longTurn > 1.25*shortTurn {
			t.Errorf("%s: a page or a turn with 10,000 messages has more allocations than one with 200", policy)
		}
	}
	verify(t, s)
}

// transaction returns the id of the last committed transaction. Each commit increases it by 1.
func transaction(t *testing.T, s *Store) (id int) {
	t.Helper()
	must(t, s.db.View(func(tx *bbolt.Tx) error {
		id = tx.ID()
		return nil
	}))
	return id
}
