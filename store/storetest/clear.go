package storetest

import (
	"errors"
	"testing"

	"parley/conversation"
)

func clearTests() []test {
	return []test{
		{"clear removes all messages and keeps usage", clearHistory},
		{"empty session can be cleared", clearEmpty},
		{"turn after a clear has no history", clearAndGoOn},
		{"clear during a live turn waits first in the queue", clearLive},
		{"clear passes the session to the next waiter", clearGranted},
		{"second end of a cleared turn is fenced", clearEnded},
	}
}

func (s *subject) clear(t *testing.T, sessionID, waiter string) conversation.Cleared {
	t.Helper()
	cleared, err := s.store.ClearMessages(s.ctx, s.owner, sessionID, waiter)
	must(t, err, "ClearMessages")
	if cleared.Queued != nil {
		t.Fatal("ClearMessages: queued, want a free session")
	}
	return cleared
}

// wantCleared checks the session after a clear. before is the session before the clear.
func (s *subject) wantCleared(t *testing.T, cleared conversation.Cleared, before conversation.Session) {
	t.Helper()
	mark := cleared.Session.Cleared
	if !conversation.ValidID(conversation.MessagePrefix, mark) || mark <= before.Head {
		t.Errorf("cleared is %q, want a message id greater than %q", mark, before.Head)
	}
	want := before
	want.MessageCount, want.HistoryTokens, want.Head, want.Cleared = 0, 0, mark, mark
	same(t, "the result of ClearMessages", cleared, conversation.Cleared{Count: before.MessageCount, Session: want})
	same(t, "the session", s.session(t, before.ID), want)
	same(t, "the messages", s.history(t, before.ID), nil)
}

func clearHistory(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	before := s.session(t, id)
	s.wantCleared(t, s.clear(t, id, "clears"), before)
	_, err := s.store.Message(s.ctx, s.owner, id, all[0].ID)
	wantError(t, "Message", err, conversation.ErrMessageNotFound)
	for _, session := range s.pages(t, conversation.SessionQuery{Limit: 10}) {
		if session.ID != id {
			same(t, "the number of messages in another session", len(s.history(t, session.ID)), 2)
		}
	}
}

func clearEmpty(t *testing.T, s *subject) {
	session := s.create(t, plain())
	first := s.clear(t, session.ID, "clears")
	s.wantCleared(t, first, session)
	s.wantCleared(t, s.clear(t, session.ID, "clears again"), first.Session)
}

func clearAndGoOn(t *testing.T, s *subject) {
	id, all := conversed(t, s, 2)
	cleared := s.clear(t, id, "clears")
	begun := s.begin(t, question(id, "and now?"))
	if begun.Message.ID <= cleared.Session.Cleared || begun.Message.CreatedAt < all[3].CreatedAt {
		t.Errorf("message %s of %v must come after %s, and not before the earlier messages", begun.Message.ID, begun.Message.CreatedAt, cleared.Session.Cleared)
	}
	same(t, "Previous", begun.Previous, cleared.Session.Cleared)
	same(t, "the history", begun.History, nil)
	same(t, "the history's tokens", begun.Session.HistoryTokens, inPrompt(10))
	same(t, "the messages", begun.Session.MessageCount, 2)
	same(t, "Session.Cleared", begun.Session.Cleared, cleared.Session.Cleared)
	same(t, "the fence", begun.Session.Fence, cleared.Session.Fence+1)
	s.end(t, begun.Key, answer("yes"))
	page, err := s.store.Messages(s.ctx, s.owner, id, conversation.MessageQuery{From: all[1].ID, Ascending: true, Limit: 10})
	must(t, err, "Messages")
	same(t, "the page after a message that was cleared", ids(page.Messages), []string{begun.Message.ID, begun.Reply.ID})
}

func clearLive(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first := question(session.ID, "first")
	s.queue(t, first)
	cleared, err := s.store.ClearMessages(s.ctx, s.owner, session.ID, "clears")
	must(t, err, "ClearMessages")
	if cleared.Queued == nil {
		t.Fatal("ClearMessages: not queued, while a turn is live")
	}
	same(t, "the live reply to cancel", cleared.Queued.Live, begun.Reply.ID)
	same(t, "the result of ClearMessages", cleared, conversation.Cleared{Queued: cleared.Queued})
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, cancelled)
	granted(t, cleared.Queued)
	s.queue(t, first) // still queued
	before := s.session(t, session.ID)
	s.wantCleared(t, s.clear(t, session.ID, "clears"), before)
}

func clearGranted(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first := question(session.ID, "first")
	queued := s.queue(t, first)
	cleared, err := s.store.ClearMessages(s.ctx, s.owner, session.ID, "clears")
	must(t, err, "ClearMessages")
	s.end(t, begun.Key, cancelled)
	granted(t, cleared.Queued)
	same(t, "the number of cleared messages", s.clear(t, session.ID, "clears").Count, 2)
	granted(t, queued)
	next := s.begin(t, first)
	same(t, "the messages", s.history(t, session.ID), []conversation.Message{next.Message, next.Reply})
}

func clearEnded(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	s.end(t, begun.Key, answer("yes"))
	cleared := s.clear(t, session.ID, "clears")
	_, err := s.store.EndTurn(s.ctx, begun.Key, answer("again"), timing)
	if !errors.Is(err, conversation.ErrFenced) {
		t.Errorf("EndTurn: error %v, want %v", err, conversation.ErrFenced)
	}
	same(t, "the session", s.session(t, session.ID), cleared.Session)
	same(t, "the messages", s.history(t, session.ID), nil)
}
