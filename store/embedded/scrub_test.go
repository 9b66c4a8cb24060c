package embedded

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"parley/conversation"
	"parley/stream"
)

// traces holds a session and its marks: texts that occur nowhere else, such as ids, contents, metadata and idempotency keys. If
// the files contain a mark, data of the session is left.
type traces struct {
	session conversation.Session
	marks   []string
}

// leaveTraces creates a session with the given number of turns. If live is true, the last turn does not end.
func leaveTraces(t testing.TB, s *Store, turns int, live bool) traces {
	t.Helper()
	mark := func() string { return "MARK" + conversation.RandomText(20) }
	left := traces{marks: []string{mark(), mark()}}
	user, last := conversation.UserPrefix+conversation.RandomText(16), ""
	config := conversation.DefaultContextConfig
	config.RetentionPolicy = conversation.Semantic
	made, err := s.CreateSession(t.Context(), somebody, conversation.NewSession{
		UserID: user, Metadata: fmt.Appendf(nil, `{"secret":%q}`, left.marks[0]), Context: config,
		Idempotency: &conversation.Idempotency{Key: left.marks[1]},
	})
	must(t, err)
	session := made.Session
	left.session = session
	left.marks = append(left.marks, session.ID, user)
	for i := range turns {
		asked, metadata, answered, journalled, key := mark(), mark(), mark(), mark(), "KEY"+mark()
		turn := newTurn(session.ID, asked)
		turn.Metadata = fmt.Appendf(nil, `{"secret":%q}`, metadata)
		turn.Idempotency = &conversation.Idempotency{Key: key}
		begun, err := s.BeginTurn(t.Context(), somebody, turn)
		must(t, err)
		left.marks = append(left.marks, asked, metadata, journalled, key, begun.Message.ID, begun.Reply.ID)
		journalText(t, s, begun.Key, 0, journalled)
		if live && i == turns-1 {
			break
		}
		_, err = s.EndTurn(t.Context(), begun.Key, completed(answered), conversation.Timing{})
		must(t, err)
		summary := conversation.Summary{Text: mark(), Last: begun.Reply.ID}
		must(t, s.SaveSummary(t.Context(), somebody, session.ID, last, summary, conversation.Usage{}))
		last = begun.Reply.ID
		left.marks = append(left.marks, summary.Text, answered)
	}
	return left
}

// remaining counts the occurrences of the marks in the files of the store at path.
func (left traces) remaining(t testing.TB, path string) int {
	t.Helper()
	names, err := filepath.Glob(path + "*")
	must(t, err)
	if len(names) != 2 {
		t.Errorf("the files are %v", names)
	}
	n := 0
	for _, name := range names {
		content, err := os.ReadFile(name)
		must(t, err)
		for _, mark := range left.marks {
			n += bytes.Count(content, []byte(mark))
		}
	}
	return n
}

func wantNoTrace(t testing.TB, s *Store, path string, gone ...traces) {
	t.Helper()
	must(t, s.Scrubbed(context.Background()))
	for _, left := range gone {
		if n := left.remaining(t, path); n != 0 {
			t.Errorf("the files still contain %d marks of a removed session", n)
		}
	}
}

// The test removes sessions of different sizes. The pages of these sessions lie between the pages of sessions that the test
// keeps.
func TestScrub_RemovedSessions_LeaveNoTrace(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, s *Store, left traces){
		"deleted": func(t *testing.T, s *Store, left traces) {
			_, err := s.DeleteSession(t.Context(), somebody, left.session.ID)
			must(t, err)
		},
		"expired": func(t *testing.T, s *Store, left traces) {
			expire(t, s, left.session)
			_, _, err := s.RemoveExpired(t.Context())
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			s := open(t, path)
			var gone, kept []traces
			for i := range 12 { // removed and kept sessions alternate, over many pages
				gone = append(gone, leaveTraces(t, s, 1+i%4*3, i%3 == 0))
				kept = append(kept, leaveTraces(t, s, 2, i%3 == 1))
			}
			for _, left := range gone {
				if left.remaining(t, path) < len(left.marks)/2 {
					t.Fatal("the files do not contain the marks before the removal, so the test proves nothing")
				}
			}
			for _, left := range gone {
				remove(t, s, left)
			}
			wantNoTrace(t, s, path, gone...)
			verify(t, s)
			for _, left := range kept {
				_, err := s.Messages(t.Context(), somebody, left.session.ID, conversation.MessageQuery{Limit: 100})
				must(t, err)
			}
			closeStore(t, s)
			s = open(t, path) // the sweep must leave the file consistent
			verify(t, s)
			wantNoTrace(t, s, path, gone...)
		})
	}
}

func TestScrub_ClearedMessages_LeaveNoTrace(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	other := leaveTraces(t, s, 2, true)
	left := leaveTraces(t, s, 6, false)
	_, err := s.ClearMessages(t.Context(), somebody, left.session.ID, "clears")
	must(t, err)
	// The session remains. The idempotency keys and the ids of their replies remain too, so that a repeated request does not run
	// again.
	left.marks = slices.DeleteFunc(left.marks[4:], func(mark string) bool { return !strings.HasPrefix(mark, "MARK") })
	wantNoTrace(t, s, path, left)
	if text, _ := s.journal.text(other.marks[len(other.marks)-1]); text == "" {
		t.Error("the live text of another session is gone")
	}
	verify(t, s)
}

func TestScrub_PagesAboveHighWaterMark_Overwritten(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	left := leaveTraces(t, s, 3, false)
	content, err := os.ReadFile(path)
	must(t, err)
	_, err = s.DeleteSession(t.Context(), somebody, left.session.ID)
	must(t, err)
	must(t, s.Scrubbed(t.Context()))
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	// The copy is above the high-water mark, where bbolt uses no page. A failed commit can leave data there too.
	_, err = file.WriteAt(content[2*4096:], int64(len(content)))
	must(t, err)
	must(t, file.Close())
	if left.remaining(t, path) == 0 {
		t.Fatal("the file does not contain the marks before the sweep, so the test proves nothing")
	}
	s.scrub.want()
	wantNoTrace(t, s, path, left)
	verify(t, s)
}

func TestOpen_RemovalWithoutSweep_LeavesNoTrace(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	left := leaveTraces(t, s, 5, true)
	s.writer.Lock() // blocks the scrubber, so that the test can copy the files as a killed process would leave them
	var content []byte
	err := s.db.Update(func(tx *bbolt.Tx) error {
		w := &writing{reading: reading{bolt: tx}, store: s, queues: make(map[ref]queue)}
		session, err := w.session(ref{somebody, left.session.ID})
		if err != nil {
			return err
		}
		return w.removeSession(ref{somebody, session.ID}, &session)
	})
	must(t, err)
	content, err = os.ReadFile(path)
	must(t, err)
	journalled, err := os.ReadFile(path + "-journal")
	must(t, err)
	s.writer.Unlock()
	again := newPath(t)
	must(t, os.WriteFile(again, content, 0o600))
	must(t, os.WriteFile(again+"-journal", journalled, 0o600))
	if left.remaining(t, again) == 0 {
		t.Fatal("the copies do not contain the marks before the sweep, so the test proves nothing")
	}
	s = open(t, again)
	wantNoTrace(t, s, again, left)
	verify(t, s)
}

// Sweeps run without a pause while sessions are created, deleted and read.
func TestScrub_DuringReadsAndWrites_DataIntact(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	done := make(chan struct{})
	var others, writers sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			s.scrub.want()
			if err := s.Scrubbed(context.Background()); err != nil {
				t.Errorf("Scrubbed: %v", err)
			}
		}
	})
	kept := leaveTraces(t, s, 10, false)
	want, err := s.Messages(t.Context(), somebody, kept.session.ID, conversation.MessageQuery{Limit: 100})
	must(t, err)
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := s.Messages(context.Background(), somebody, kept.session.ID, conversation.MessageQuery{Limit: 100})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("a session without writes has changed: %v\n%s", err, diff)
				return
			}
		}
	})
	for range 4 {
		writers.Go(func() {
			for range 5 {
				left := leaveTraces(t, s, 3, true)
				if _, err := s.DeleteSession(t.Context(), somebody, left.session.ID); err != nil {
					t.Errorf("DeleteSession: %v", err)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	others.Wait()
	verify(t, s)
}

// The test removes a session during a read of that session. The removal makes the reader's pages free, but these pages must not
// change until the reader is done.
func TestScrub_WaitsForOlderReader(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	// There must be enough free pages, because bbolt waits for its readers before it grows the file.
	_, err := s.DeleteSession(t.Context(), somebody, leaveTraces(t, s, 40, false).session.ID)
	must(t, err)
	left := leaveTraces(t, s, 10, false)
	must(t, s.Scrubbed(t.Context()))
	at := ref{somebody, left.session.ID}
	query := conversation.MessageQuery{Limit: 100}
	scrubbed := make(chan struct{})
	must(t, s.view(t.Context(), func(r *reading) error {
		session, err := r.session(at)
		must(t, err)
		before, _, err := r.messages(at, session.MessageCount, query)
		must(t, err)
		_, err = s.DeleteSession(t.Context(), somebody, left.session.ID)
		must(t, err)
		go func() {
			defer close(scrubbed)
			if err := s.Scrubbed(context.Background()); err != nil {
				t.Errorf("Scrubbed: %v", err)
			}
		}()
		for s.readers.TryRLock() { // until the scrubber waits for the lock
			s.readers.RUnlock()
			select {
			case <-scrubbed:
				t.Error("the scrubber did not wait")
				return nil
			default:
				runtime.Gosched()
			}
		}
		after, _, err := r.messages(at, session.MessageCount, query)
		if diff := cmp.Diff(before, after); diff != "" || err != nil {
			t.Errorf("error %v, messages (-before +after):\n%s", err, diff)
		}
		return nil
	}))
	<-scrubbed
}

func TestScrub_PageOfZeros_NotRewritten(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	left := leaveTraces(t, s, 10, false)
	_, err := s.DeleteSession(t.Context(), somebody, left.session.ID)
	must(t, err)
	must(t, s.Scrubbed(t.Context()))
	must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	s.scrub.want()
	must(t, s.Scrubbed(t.Context()))
	info, err := os.Stat(path)
	must(t, err)
	if !info.ModTime().Equal(time.Unix(1, 0)) {
		t.Error("the file was written")
	}
}

func TestScrub_Interval_SeparatesSweeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(newPath(t), Options{noSync: true})
		must(t, err)
		defer closeStore(t, s)
		must(t, s.Scrubbed(t.Context()))
		start := time.Now()
		for range 3 {
			s.scrub.want()
			must(t, s.Scrubbed(t.Context()))
		}
		if took := time.Since(start); took < 2*scrubInterval || took > 4*scrubInterval {
			t.Errorf("three sweeps took %v", took)
		}
	})
}

// The test runs random operations and opens the file again between some of them.
func TestScrub_RandomOperations_LeaveNoTrace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		must(t, err)
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "parley.db")
		s, err := Open(path, Options{noSync: true, scrubInterval: 1})
		must(t, err)
		var kept, gone []traces
		pick := func(rt *rapid.T) int {
			if len(kept) == 0 {
				rt.Skip("there is no session")
			}
			return rapid.IntRange(0, len(kept)-1).Draw(rt, "session")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"leave traces": func(rt *rapid.T) {
				turns := rapid.IntRange(0, 5).Draw(rt, "turns")
				kept = append(kept, leaveTraces(t, s, turns, rapid.Bool().Draw(rt, "live")))
			},
			"delete": func(rt *rapid.T) {
				i := pick(rt)
				_, err := s.DeleteSession(t.Context(), somebody, kept[i].session.ID)
				must(t, err)
				gone = append(gone, kept[i])
				kept = append(kept[:i:i], kept[i+1:]...)
			},
			"end or begin": func(rt *rapid.T) {
				i := pick(rt)
				session, err := s.Session(t.Context(), somebody, kept[i].session.ID)
				must(t, err)
				if session.LiveReply == "" {
					begun := beginTurn(t, s, session.ID, "and again")
					kept[i].marks = append(kept[i].marks, begun.Message.ID, begun.Reply.ID)
					return
				}
				_, err = s.EndTurn(t.Context(), conversation.TurnKey{
					Owner: somebody, SessionID: session.ID, ReplyID: session.LiveReply, Fence: session.Fence,
				}, conversation.Message{Status: stream.Cancelled, Content: "cut"}, conversation.Timing{})
				must(t, err)
			},
			"open again": func(rt *rapid.T) {
				must(t, s.Close())
				s, err = Open(path, Options{noSync: true, scrubInterval: 1})
				must(t, err)
				if rapid.Bool().Draw(rt, "end orphans") {
					_, err = s.EndOrphans(t.Context(), func(text string) int { return len(text) })
					must(t, err)
				}
			},
			"": func(rt *rapid.T) {
				if rapid.IntRange(0, 9).Draw(rt, "look") == 0 {
					wantNoTrace(t, s, path, gone...)
					verify(t, s)
				}
			},
		})
		wantNoTrace(t, s, path, gone...)
		verify(t, s)
		must(t, s.Close())
		if t.Failed() {
			rt.Fail()
		}
	})
}
