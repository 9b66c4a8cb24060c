package embedded

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"parley/auth"
	"parley/conversation"
	"parley/stream"
)

// seen holds the sessions, the histories and the number of API keys that a reader sees in a store.
type seen struct {
	sessions  map[string]conversation.Session
	histories map[string][]conversation.Message
	keys      int
}

// worst keeps the worst outcome of a damage and the place at which it was seen.
type worst struct{ outcome, detail string }

var outcomeRanks = []string{"unharmed", "unavailable", "refused", "no reason given", "other error", "panicked", "lost", "altered"}

func (w *worst) note(outcome, detail string) {
	rank := func(name string) int {
		for i, known := range outcomeRanks {
			if known == name {
				return i
			}
		}
		return len(outcomeRanks)
	}
	if rank(outcome) > rank(w.outcome) {
		*w = worst{outcome, detail}
	}
}

// failed notes an error of a method. It returns false for nil.
func (w *worst) failed(what string, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, conversation.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		w.note("unavailable", what+": "+err.Error())
	case errors.Is(err, conversation.ErrSessionNotFound), errors.Is(err, conversation.ErrMessageNotFound), errors.Is(err, auth.ErrInvalidToken):
		w.note("lost", what+": "+err.Error())
	default:
		w.note("other error", what+": "+err.Error())
	}
	return true
}

// protect runs a request. It recovers a panic, like the HTTP server, and notes it.
func (w *worst) protect(request func()) {
	defer func() {
		if p := recover(); p != nil {
			w.note("panicked", fmt.Sprint(p))
		}
	}()
	request()
}

// look reads the whole store, and notes errors and differences from want. want is nil for the first look, at the
// undamaged store.
func look(s *Store, want *seen, w *worst) seen {
	ctx := context.Background()
	got := seen{sessions: make(map[string]conversation.Session), histories: make(map[string][]conversation.Message)}
	for _, owner := range damageOwners {
		page, err := s.Sessions(ctx, owner, conversation.SessionQuery{Limit: 1000})
		if !w.failed("Sessions", err) {
			for _, session := range page.Sessions {
				got.sessions[owner.Account+session.ID] = session
			}
		}
		if found, err := s.Keys(ctx, auth.Owner{Account: owner.Account, Mode: string(owner.Mode)}, auth.KeyQuery{Limit: 100}); !w.failed("Keys", err) {
			got.keys += len(found.Keys)
			if want != nil && len(found.Keys) != want.keys/len(damageOwners) {
				w.note("lost", fmt.Sprintf("%d keys", len(found.Keys)))
			}
		}
		known := got.sessions
		if want != nil {
			known = want.sessions
		}
		for at, session := range known {
			if !strings.HasPrefix(at, owner.Account) {
				continue
			}
			if want != nil && err == nil && !reflect.DeepEqual(got.sessions[at], session) {
				w.note("altered", "the list has another session "+at)
			}
			w.protect(func() { got.histories[at] = lookAt(s, owner, session, want, at, w) })
		}
	}
	return got
}

// lookAt reads the history of a session in several ways.
func lookAt(s *Store, owner conversation.Owner, session conversation.Session, want *seen, at string, w *worst) []conversation.Message {
	ctx := context.Background()
	var all []conversation.Message
	for from := ""; ; {
		page, err := s.Messages(ctx, owner, session.ID, conversation.MessageQuery{From: from, Ascending: true, Limit: 7})
		if w.failed("Messages", err) {
			break
		}
		all = append(all, page.Messages...)
		if !page.More {
			if want != nil && !reflect.DeepEqual(all, want.histories[at]) {
				w.note("altered", fmt.Sprintf("the history has %d of %d messages, differs at %d", len(all), len(want.histories[at]), firstDifference(all, want.histories[at])))
			}
			break
		}
		from = page.Messages[len(page.Messages)-1].ID
	}
	if want == nil {
		return all
	}
	before := want.histories[at]
	newest, err := s.Messages(ctx, owner, session.ID, conversation.MessageQuery{Limit: 5})
	if !w.failed("Messages, newest first", err) {
		for i := range min(5, len(before)) {
			if i >= len(newest.Messages) || !reflect.DeepEqual(newest.Messages[i], before[len(before)-1-i]) {
				w.note("altered", fmt.Sprintf("newest message %d differs", i))
			}
		}
	}
	for i := range before {
		m, err := s.Message(ctx, owner, session.ID, before[i].ID)
		if !w.failed("Message", err) && !reflect.DeepEqual(m, before[i]) {
			w.note("altered", "message "+m.ID)
		}
	}
	found, err := s.Context(ctx, owner, session.ID, 10)
	if !w.failed("Context", err) {
		for i := 1; i <= len(found.History) && i <= len(before); i++ {
			if found.History[len(found.History)-i].Content != before[len(before)-i].Content {
				w.note("altered", "the context has another message")
			}
		}
		if len(found.History) == 0 && len(before) > 0 {
			w.note("altered", "the context is empty")
		}
	}
	return all
}

// firstDifference returns the index of the first message that differs.
func firstDifference(a, b []conversation.Message) int {
	for i := range min(len(a), len(b)) {
		if !reflect.DeepEqual(a[i], b[i]) {
			return i
		}
	}
	return min(len(a), len(b))
}

// use writes to all sessions that want has, except those with a live reply.
func use(s *Store, want *seen, w *worst) {
	ctx := context.Background()
	for _, owner := range damageOwners {
		for at, session := range want.sessions {
			if session.LiveReply != "" || !strings.HasPrefix(at, owner.Account) {
				continue
			}
			begun, err := s.BeginTurn(ctx, owner, newTurn(session.ID, "a new message"))
			if w.failed("BeginTurn", err) || begun.Queued != nil {
				continue
			}
			_ = s.Journal(ctx, []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte("a new reply")}})
			_, err = s.EndTurn(ctx, begun.Key, completed("a new reply"), conversation.Timing{})
			w.failed("EndTurn", err)
		}
		_, err := s.CreateSession(ctx, owner, conversation.NewSession{UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig})
		w.failed("CreateSession", err)
	}
	_, _, err := s.RemoveExpired(ctx)
	w.failed("RemoveExpired", err)
	_, err = s.EndOrphans(ctx, func(text string) int { return len(text) })
	w.failed("EndOrphans", err)
}

// stillThere checks that the messages of want are unchanged after use.
func stillThere(s *Store, want *seen, w *worst) {
	for _, owner := range damageOwners {
		for at, session := range want.sessions {
			if !strings.HasPrefix(at, owner.Account) {
				continue
			}
			page, err := s.Messages(context.Background(), owner, session.ID, conversation.MessageQuery{Ascending: true, Limit: 1000})
			if w.failed("Messages", err) {
				continue
			}
			before := want.histories[at]
			if session.LiveReply != "" {
				before = before[:len(before)-1]
			}
			if len(page.Messages) < len(before) || !reflect.DeepEqual(page.Messages[:len(before)], before) {
				w.note("altered", fmt.Sprintf("after writes, the history has %d messages instead of %d", len(page.Messages), len(before)))
			}
		}
	}
}
