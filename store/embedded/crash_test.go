package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"parley/conversation"
	"parley/stream"
)

// crashEnv is an environment variable with the path of a store. If it is set, this test binary runs crashChild on that store.
const crashEnv = "PARLEY_STORE_CRASH_CHILD"

// textOf returns a text that depends on id. A reply has the text of its id; user messages have the text of their session's id.
func textOf(id string) string { return strings.Repeat("the text of "+id+", äöü. ", 20) }

// crashChild writes the store at path until it is killed. It prints a line after each operation that has returned.
func crashChild(path string) int {
	s, err := Open(path, Options{scrubInterval: 1})
	if err == nil {
		_, err = s.EndOrphans(context.Background(), func(text string) int { return len(text) })
	}
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	report := func(what ...any) { os.Stdout.WriteString(fmt.Sprintln(what...)) }
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for {
				if err := crashSession(context.Background(), s, report); err != nil {
					report("failed", err)
					return
				}
			}
		})
	}
	writers.Wait()
	return 1
}

// crashSession creates a session and runs four turns in the session. Then it deletes the session with a probability of one third.
func crashSession(ctx context.Context, s *Store, report func(...any)) error {
	made, err := s.CreateSession(ctx, somebody, conversation.NewSession{
		UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig,
	})
	if err != nil {
		return err
	}
	session := made.Session
	report("created", session.ID)
	for range 4 {
		begun, err := s.BeginTurn(ctx, somebody, conversation.NewTurn{
			SessionID: session.ID, Role: conversation.User, Content: textOf(session.ID), Tokens: 10, Waiter: "w",
		})
		if err != nil {
			return err
		}
		report("begun", session.ID, begun.Message.ID, begun.Reply.ID)
		text := textOf(begun.Reply.ID)
		for from := 0; from < len(text); from += 100 {
			to := min(from+100, len(text))
			if err := s.Journal(ctx, []segment{of(begun.Key, from, text[from:to])}); err != nil {
				return err
			}
			report("journalled", session.ID, begun.Reply.ID, to)
		}
		if _, err := s.EndTurn(ctx, begun.Key, completed(text), conversation.Timing{}); err != nil {
			return err
		}
		report("ended", session.ID, begun.Reply.ID)
	}
	if rand.IntN(3) > 0 {
		return nil
	}
	report("deleting", session.ID)
	if _, err := s.DeleteSession(ctx, somebody, session.ID); err != nil {
		return err
	}
	report("deleted", session.ID)
	return nil
}

// acknowledged records the operations on one session that the children have reported.
type acknowledged struct {
	messages   []string                      // ids of user messages
	replies    map[string]*acknowledgedReply // by id
	mayBeGone  bool                          // the deletion has begun
	mustBeGone bool                          // the deletion was reported
}

type acknowledgedReply struct {
	journalled int // bytes
	ended      bool
}

// recordLine parses a line that a child has printed, and records the operation in reported.
func recordLine(t *testing.T, reported map[string]*acknowledged, line string) {
	t.Helper()
	words := strings.Fields(line)
	if words[0] == "failed" {
		t.Fatalf("the child failed: %s", line)
	}
	id := words[1]
	if words[0] == "created" {
		reported[id] = &acknowledged{replies: make(map[string]*acknowledgedReply)}
	}
	a := reported[id]
	switch words[0] {
	case "begun":
		a.messages = append(a.messages, words[2])
		a.replies[words[3]] = new(acknowledgedReply)
	case "journalled":
		_, err := fmt.Sscan(words[3], &a.replies[words[2]].journalled)
		must(t, err)
	case "ended":
		a.replies[words[2]].ended = true
	case "deleting":
		a.mayBeGone = true
	case "deleted":
		a.mustBeGone = true
	}
}

// crash runs a child. When the child has printed line number after, counted from 0, crash kills the child. It records the
// operations in all complete lines in reported.
func crash(t *testing.T, path string, after int, reported map[string]*acknowledged) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashEnv+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewReader(out)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		recordLine(t, reported, line)
		if n == after {
			must(t, child.Process.Kill())
		}
	}
	if err := child.Wait(); err == nil || child.ProcessState.Exited() {
		t.Fatalf("the child was not killed: %v", err)
	}
}

func TestKill_AcknowledgedWrites_AreKept(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	reported := make(map[string]*acknowledged)
	for range 10 {
		crash(t, path, 1+rand.IntN(400), reported)
		s := open(t, path)
		verify(t, s)
		_, err := s.EndOrphans(t.Context(), func(text string) int { return len(text) })
		must(t, err)
		verify(t, s)
		for id, a := range reported {
			a.check(t, s, id)
		}
		closeStore(t, s)
	}
	if len(reported) < 10 {
		t.Errorf("the children created %d sessions, want at least 10", len(reported))
	}
}

func (a *acknowledged) check(t *testing.T, s *Store, id string) {
	t.Helper()
	_, err := s.Session(t.Context(), somebody, id)
	if gone := errors.Is(err, conversation.ErrSessionNotFound); gone && a.mayBeGone || a.mustBeGone {
		if !gone {
			t.Errorf("session %s was deleted and still exists: %v", id, err)
		}
		return
	}
	must(t, err)
	for _, message := range a.messages {
		m, err := s.Message(t.Context(), somebody, id, message)
		if err != nil || m.Content != textOf(id) {
			t.Errorf("message %s is %q, error %v", message, m.Content, err)
		}
	}
	for reply, reported := range a.replies {
		m, err := s.Message(t.Context(), somebody, id, reply)
		whole := textOf(reply)
		switch {
		case err != nil:
			t.Errorf("reply %s: %v", reply, err)
		case m.Status == stream.Completed && m.Content == whole:
		case reported.ended || m.Status != stream.Interrupted:
			t.Errorf("reply %s is %s: %q", reply, m.Status, m.Content)
		case !strings.HasPrefix(whole, m.Content) || len(m.Content) < reported.journalled-1: // the last byte may belong to an incomplete character
			t.Errorf("reply %s has %d bytes, of %d that were journalled: %q", reply, len(m.Content), reported.journalled, m.Content)
		}
	}
}
