package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"parley/conversation"
	"parley/stream"
)

func concurrencyTests() []test {
	return []test{
		{"concurrent sessions keep their own turns", manySessions},
		{"only one of ten concurrent endings is stored", racingEnds},
		{"only one of 20 concurrent sends with Reject begins", racingBegins},
		{"reads during writes never see half a turn", readsBesideWrites},
		{"call with a cancelled context has no effect", contextOver},
	}
}

func manySessions(t *testing.T, s *subject) {
	const sessions, turns = 16, 5
	var callers sync.WaitGroup
	for i := range sessions {
		callers.Go(func() {
			made, err := s.store.CreateSession(s.ctx, s.owner, plain())
			if err != nil {
				t.Errorf("CreateSession: %v", err)
				return
			}
			session := made.Session
			for j := range turns {
				turn := question(session.ID, fmt.Sprintf("%d.%d", i, j))
				begun, err := s.store.BeginTurn(s.ctx, s.owner, turn)
				if err == nil {
					err = s.store.Journal(s.ctx, segments(begun.Key, 0, "to "))
				}
				if err == nil {
					_, err = s.store.EndTurn(s.ctx, begun.Key, answer("to "+turn.Content), timing)
				}
				if err != nil {
					t.Errorf("turn %s: %v", turn.Content, err)
					return
				}
			}
		})
	}
	callers.Wait()
	all := s.pages(t, conversation.SessionQuery{Limit: 5})
	same(t, "the number of sessions", len(all), sessions)
	for _, session := range all {
		history := s.history(t, session.ID)
		same(t, "the messages", []int{session.MessageCount, len(history)}, []int{2 * turns, 2 * turns})
		same(t, "the usage", session.TokenUsage.Total, 22*turns)
		same(t, "the history's tokens", session.HistoryTokens, turns*(inPrompt(10)+inPrompt(5)))
		for j := range turns {
			same(t, "the reply", history[2*j+1].Content, "to "+history[2*j].Content)
		}
	}
}

func racingEnds(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	var decided atomic.Int32
	var callers sync.WaitGroup
	replies := make([]conversation.Message, 10)
	for i := range replies {
		callers.Go(func() {
			reply, err := s.store.EndTurn(s.ctx, begun.Key, answer(fmt.Sprint("ending ", i)), timing)
			switch {
			case err == nil:
				decided.Add(1)
			case !errors.Is(err, conversation.ErrFenced):
				t.Errorf("EndTurn: %v", err)
			}
			replies[i] = reply
		})
	}
	callers.Wait()
	same(t, "the number of endings that were stored", decided.Load(), 1)
	stored := s.message(t, session.ID, begun.Reply.ID)
	for _, reply := range replies {
		same(t, "the result of EndTurn", reply, stored)
	}
	same(t, "the usage", s.session(t, session.ID).TokenUsage.Total, 22)
}

func racingBegins(t *testing.T, s *subject) {
	session := s.create(t, plain())
	var begun atomic.Int32
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			turn := question(session.ID, fmt.Sprint(i))
			turn.OnBusy = conversation.Reject
			switch _, err := s.store.BeginTurn(s.ctx, s.owner, turn); {
			case err == nil:
				begun.Add(1)
			case !errors.Is(err, conversation.ErrSessionBusy):
				t.Errorf("BeginTurn: %v", err)
			}
		})
	}
	callers.Wait()
	same(t, "the number of turns that began", begun.Load(), 1)
	same(t, "the messages", s.session(t, session.ID).MessageCount, 2)
}

func readsBesideWrites(t *testing.T, s *subject) {
	session := s.create(t, plain())
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				page, err := s.store.Messages(s.ctx, s.owner, session.ID, conversation.MessageQuery{Ascending: true, Limit: 1000})
				if err != nil {
					t.Errorf("Messages: %v", err)
					return
				}
				if err := whole(page); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 25 {
		begun := s.begin(t, question(session.ID, fmt.Sprint(i)))
		s.journal(t, begun.Key, 0, "yes")
		s.end(t, begun.Key, answer("yes, and so on"))
		if i%10 == 9 {
			s.clear(t, session.ID, conversation.RandomText(16))
		}
	}
	close(done)
	readers.Wait()
}

// whole returns an error if a page with all messages is not consistent with its session.
func whole(page conversation.MessagePage) error {
	if len(page.Messages) != page.Session.MessageCount {
		return fmt.Errorf("%d messages, but messageCount is %d", len(page.Messages), page.Session.MessageCount)
	}
	tokens := 0
	for i, m := range page.Messages {
		streaming := m.Status == stream.Streaming
		if live := m.ID == page.Session.LiveReply; streaming != live {
			return fmt.Errorf("message %d is %s, while the session's live reply is %q", i, m.Status, page.Session.LiveReply)
		}
		if streaming && m.Content != "" && m.Content != "yes" {
			return fmt.Errorf("a streaming reply has the text %q, which was never journalled", m.Content)
		}
		if !streaming {
			tokens += inPrompt(m.Tokens)
		}
	}
	if tokens != page.Session.HistoryTokens {
		return fmt.Errorf("the messages have %d tokens, but the session counts %d", tokens, page.Session.HistoryTokens)
	}
	return nil
}

func contextOver(t *testing.T, s *subject) {
	session := s.create(t, plain())
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	over := *s
	over.ctx = ctx
	for call, err := range everyCall(&over, session.ID) {
		wantError(t, call, err, context.Canceled)
	}
	same(t, "the session", s.session(t, session.ID), session)
}
