package embedded

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/conversation"
)

// logLines is a buffer for log lines.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logLines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// openWatched opens a store that checks its files every 10 ms.
func openWatched(t *testing.T, path string) (*Store, *logLines) {
	t.Helper()
	log := new(logLines)
	s, err := Open(path, Options{
		noSync: true, scrubInterval: 1, watchInterval: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	must(t, err)
	t.Cleanup(func() { closeStore(t, s) })
	return s, log
}

// untilPing waits until Ping returns want. The default interval of the checks is 2 s. A busy machine may take longer.
func untilPing(t *testing.T, s *Store, want error) {
	t.Helper()
	start, err := time.Now(), error(nil)
	for time.Since(start) < time.Minute {
		if err = s.Ping(t.Context()); err == nil && want == nil || want != nil && errors.Is(err, want) {
			t.Logf("Ping returned %v after %v", err, time.Since(start).Round(time.Millisecond))
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("Ping returned %v, want %v", err, want)
}

func TestWatch_FileMoved_WritesRefusedUntilBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		move, repair func(path string) error
	}{
		{"removed and linked again", os.Remove, func(path string) error { return os.Link(path+"-link", path) }},
		{"renamed and renamed back", func(path string) error { return os.Rename(path, path+"-away") },
			func(path string) error { return os.Rename(path+"-away", path) }},
		{"replaced by another file", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("other"), 0o600))
		}, func(path string) error { return os.Rename(path+"-link", path) }},
		{"folder renamed", func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"-away") },
			func(path string) error { return os.Rename(filepath.Dir(path)+"-away", filepath.Dir(path)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "data", "parley.db")
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
			s, log := openWatched(t, path)
			begun := beginTurn(t, s, newSession(t, s).ID, "hello")
			beginTurnWith(t, s, begun.Session.ID, "waiter")
			must(t, os.Link(path, path+"-link"))
			must(t, c.move(path))
			_, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{UserID: "user_0123456789abcdef"})
			if !errors.Is(err, conversation.ErrStoreMoved) {
				t.Errorf("the first write after the move returned %v", err)
			}
			untilPing(t, s, conversation.ErrStoreMoved)
			must(t, s.LeaveQueue(t.Context(), somebody, begun.Session.ID, "waiter"))
			if _, err := s.Session(t.Context(), somebody, begun.Session.ID); err != nil {
				t.Errorf("a read: %v", err)
			}
			must(t, c.repair(path))
			untilPing(t, s, nil)
			_, err = s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
			must(t, err)
			if beginTurnWith(t, s, begun.Session.ID, "other").Queued != nil {
				t.Error("the session is reserved for a waiter that has left the queue")
			}
			if n := log.count("level=ERROR"); n > 2 { // one from the checks, and one from the sweeps
				t.Errorf("%d errors were logged, want at most 2:\n%s", n, log.text.String())
			}
			verify(t, s)
		})
	}
}

func TestWatch_JournalRemoved_WrittenAgain(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, log := openWatched(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "some text")
	must(t, os.Remove(path+"-journal"))
	for start := time.Now(); log.count("has ended") == 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("the journal was not written again")
		}
	}
	if log.count("removed or replaced") != 2 { // the fault and its end
		t.Errorf("the log does not say that the journal was removed:\n%s", log.text.String())
	}
	journalText(t, s, begun.Key, 9, " and more")
	must(t, s.Ping(t.Context()))
	closeStore(t, s)
	if text, _ := open(t, path).journal.text(begun.Reply.ID); text != "some text and more" {
		t.Errorf("the next server reads %q", text)
	}
}

func TestWatch_WritesFail_NotReadyUntilProbeSucceeds(t *testing.T) {
	t.Parallel()
	s, _ := openWatched(t, newPath(t))
	must(t, s.Ping(t.Context()))
	_ = s.fail(transaction(t, s)+1, errors.New("an error of the disk"))
	untilPing(t, s, nil) // no operation has run in between
	verify(t, s)
}
