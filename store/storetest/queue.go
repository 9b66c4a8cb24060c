package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"parley/conversation"
	"parley/stream"
)

func queueTests() []test {
	return []test{
		{"busy session queues the turn", takesPlace},
		{"turn with Reject is refused by a busy session", rejects},
		{"waiters run in the order of arrival", inOrder},
		{"twenty concurrent sends all run", twentySends},
		{"free session is reserved for the granted waiter", keptForGranted},
		{"retry before the grant keeps the place", earlyTry},
		{"interrupt goes to the head of the queue", interrupts},
		{"turn that begins wakes a waiting interrupt", interruptWoken},
		{"full queue refuses a turn", fullQueue},
		{"leaving removes the waiter", leaveWaiting},
		{"leaving passes a granted session on", leaveGranted},
		{"overflow passes a granted session on", overflowGranted},
		{"leaving by a waiter that is not queued has no effect", leaveNothing},
		{"leaving after the turn began has no effect", leaveBegun},
		{"sessions have separate queues", otherQueues},
	}
}

var cancelled = conversation.Message{Content: "cut", Tokens: 1, Status: stream.Cancelled}

func takesPlace(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	turn := question(session.ID, "waiting")
	queued := s.queue(t, turn)
	same(t, "the live reply", queued.Live, begun.Reply.ID)
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, answer("done"))
	granted(t, queued)
	next := s.begin(t, turn)
	same(t, "the message of the next turn", next.Message.Content, "waiting")
	same(t, "Previous", next.Previous, begun.Reply.ID)
}

func rejects(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	turn := question(session.ID, "no")
	turn.OnBusy = conversation.Reject
	_, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	wantError(t, "BeginTurn", err, conversation.ErrSessionBusy)
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, answer("done"))
	turn.Waiter = conversation.RandomText(16) // if the store had queued the first waiter, it would refuse this one
	s.begin(t, turn)
}

// contents returns the contents of the user messages of a session, oldest first.
func (s *subject) contents(t *testing.T, sessionID string) []string {
	t.Helper()
	var asked []string
	for _, m := range s.history(t, sessionID) {
		if m.Role == conversation.User {
			asked = append(asked, m.Content)
		}
	}
	return asked
}

// runAll runs queued turns concurrently and returns when all have ended.
func (s *subject) runAll(t *testing.T, turns []conversation.NewTurn) {
	t.Helper()
	var sends sync.WaitGroup
	for _, turn := range turns {
		sends.Go(func() {
			begun, err := s.awaitTurn(turn)
			if err == nil {
				_, err = s.store.EndTurn(s.ctx, begun.Key, answer("to "+turn.Content), timing)
			}
			if err != nil {
				t.Errorf("the turn of %q: %v", turn.Content, err)
			}
		})
	}
	sends.Wait()
}

func inOrder(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	want, turns := []string{"running"}, []conversation.NewTurn(nil)
	for i := range 20 {
		turn := question(session.ID, fmt.Sprint("turn ", i))
		turns, want = append(turns, turn), append(want, turn.Content)
		s.queue(t, turn)
	}
	s.end(t, begun.Key, answer("done"))
	slices.Reverse(turns) // the last waiters try first
	s.runAll(t, turns)
	same(t, "the order", s.contents(t, session.ID), want)
}

func twentySends(t *testing.T, s *subject) {
	session := s.create(t, plain())
	var turns []conversation.NewTurn
	for i := range 20 {
		turns = append(turns, question(session.ID, fmt.Sprint("turn ", i)))
	}
	s.runAll(t, turns)
	history := s.history(t, session.ID)
	for i := 0; i+1 < len(history); i += 2 {
		same(t, "the reply to each message", history[i+1].Content, "to "+history[i].Content)
	}
	after := s.session(t, session.ID)
	same(t, "the messages", []int{after.MessageCount, len(history)}, []int{40, 40})
	same(t, "the usage", after.TokenUsage, conversation.TokenUsage{Prompt: 20 * 17, Completion: 20 * 5, Total: 20 * 22})
	same(t, "the history's tokens", after.HistoryTokens, 20*(inPrompt(10)+inPrompt(5)))
	same(t, "the fence", after.Fence, session.Fence+20)
}

func keptForGranted(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	queued := s.queue(t, first)
	s.end(t, begun.Key, answer("done"))
	granted(t, queued)
	// The session is free, but granted to another waiter.
	queuedSecond := s.queue(t, second)
	same(t, "the live reply", queuedSecond.Live, "")
	reject := question(session.ID, "no")
	reject.OnBusy = conversation.Reject
	_, err := s.store.BeginTurn(s.ctx, s.owner, reject)
	wantError(t, "BeginTurn with Reject", err, conversation.ErrSessionBusy)
	s.end(t, s.begin(t, first).Key, answer("done"))
	granted(t, queuedSecond)
	s.begin(t, second)
}

func earlyTry(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	s.queue(t, first)
	s.queue(t, second)
	again := s.queue(t, first)
	same(t, "the live reply", again.Live, begun.Reply.ID)
	s.end(t, begun.Key, answer("done"))
	granted(t, again)
	s.runAll(t, []conversation.NewTurn{second, first})
	same(t, "the order", s.contents(t, session.ID), []string{"running", "first", "second"})
}

func interrupting(sessionID, content string) conversation.NewTurn {
	turn := question(sessionID, content)
	turn.OnBusy = conversation.Interrupt
	return turn
}

func interrupts(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	s.queue(t, first)
	s.queue(t, second)
	urgent := interrupting(session.ID, "urgent")
	queued := s.queue(t, urgent)
	same(t, "the live reply to cancel", queued.Live, begun.Reply.ID)
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, cancelled)
	granted(t, queued)
	s.runAll(t, []conversation.NewTurn{first, second, urgent})
	same(t, "the order", s.contents(t, session.ID), []string{"running", "urgent", "first", "second"})
}

func interruptWoken(t *testing.T, s *subject) {
	session := s.create(t, plain())
	running := s.begin(t, question(session.ID, "running"))
	first := question(session.ID, "first")
	queuedFirst := s.queue(t, first)
	s.end(t, running.Key, answer("done"))
	granted(t, queuedFirst)
	urgent := interrupting(session.ID, "urgent")
	queued := s.queue(t, urgent)
	same(t, "the live reply", queued.Live, "")
	begun := s.begin(t, first)
	granted(t, queued) // the waiter is woken early, so that it sees the new live reply
	queued = s.queue(t, urgent)
	same(t, "the live reply to cancel", queued.Live, begun.Reply.ID)
	s.end(t, begun.Key, cancelled)
	granted(t, queued)
	s.begin(t, urgent)
}

func fullQueue(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	var turns []conversation.NewTurn
	for i := range conversation.QueuePlaces {
		turns = append(turns, question(session.ID, fmt.Sprint("turn ", i)))
		s.queue(t, turns[i])
	}
	for _, onBusy := range []conversation.OnBusy{conversation.Enqueue, conversation.Interrupt, conversation.Reject} {
		turn := question(session.ID, "one too many")
		turn.OnBusy = onBusy
		_, err := s.store.BeginTurn(s.ctx, s.owner, turn)
		wantError(t, "BeginTurn with "+string(onBusy), err, conversation.ErrSessionBusy)
	}
	_, err := s.store.ClearMessages(s.ctx, s.owner, session.ID, "clears")
	wantError(t, "ClearMessages", err, conversation.ErrSessionBusy)
	s.queue(t, turns[5]) // is already queued
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, turns[3].Waiter), "LeaveQueue")
	last := question(session.ID, "the last")
	s.queue(t, last)
	s.end(t, begun.Key, answer("done"))
	turns = append(slices.Delete(turns, 3, 4), last)
	s.runAll(t, turns)
	asked := s.contents(t, session.ID)
	same(t, "the number of turns that ran", len(asked), 1+conversation.QueuePlaces)
	same(t, "the last turn that ran", asked[len(asked)-1], "the last")
}

func leaveWaiting(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	s.queue(t, first)
	queued := s.queue(t, second)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, first.Waiter), "LeaveQueue")
	s.end(t, begun.Key, answer("done"))
	granted(t, queued)
	s.begin(t, second)
}

func leaveGranted(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	queuedFirst, queuedSecond := s.queue(t, first), s.queue(t, second)
	s.end(t, begun.Key, answer("done"))
	granted(t, queuedFirst)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, first.Waiter), "LeaveQueue")
	granted(t, queuedSecond)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, second.Waiter), "LeaveQueue")
	s.begin(t, question(session.ID, "anybody"))
}

func overflowGranted(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	first.Tokens = 1_000_000
	queuedFirst, queuedSecond := s.queue(t, first), s.queue(t, second)
	s.end(t, begun.Key, answer("done"))
	granted(t, queuedFirst)
	_, err := s.store.BeginTurn(s.ctx, s.owner, first)
	var overflow *conversation.OverflowError
	if !errors.As(err, &overflow) {
		t.Fatalf("BeginTurn: error %v, want an overflow", err)
	}
	granted(t, queuedSecond)
	s.begin(t, second)
}

func leaveNothing(t *testing.T, s *subject) {
	session := s.create(t, plain())
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, "nobody"), "LeaveQueue of a free session")
	turn := question(session.ID, "running")
	begun := s.begin(t, turn)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, turn.Waiter), "LeaveQueue by the waiter of the live turn")
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, "nobody"), "LeaveQueue of a busy session")
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.queue(t, question(session.ID, "waiting"))
}

func leaveBegun(t *testing.T, s *subject) {
	session := s.create(t, plain())
	running := s.begin(t, question(session.ID, "running"))
	first, second, third := question(session.ID, "first"), question(session.ID, "second"), question(session.ID, "third")
	for _, turn := range []conversation.NewTurn{first, second, third} {
		s.queue(t, turn)
	}
	s.end(t, running.Key, answer("done"))
	begun := s.begin(t, first)
	must(t, s.store.LeaveQueue(s.ctx, s.owner, session.ID, first.Waiter), "LeaveQueue")
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, answer("done"))
	s.queue(t, third)
	s.runAll(t, []conversation.NewTurn{third, second})
	same(t, "the order", s.contents(t, session.ID), []string{"running", "first", "second", "third"})
}

func otherQueues(t *testing.T, s *subject) {
	busy, free := s.create(t, plain()), s.create(t, plain())
	s.begin(t, question(busy.ID, "running"))
	turn := question(busy.ID, "waiting")
	s.queue(t, turn)
	turn.SessionID = free.ID
	must(t, s.store.LeaveQueue(s.ctx, s.owner, free.ID, turn.Waiter), "LeaveQueue")
	s.begin(t, turn)
}
