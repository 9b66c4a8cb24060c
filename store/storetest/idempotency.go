package storetest

import (
	"crypto/sha256"
	"sync"
	"testing"

	"parley/conversation"
)

func idempotencyTests() []test {
	return []test{
		{"repeated create returns the first session", createAgain},
		{"repeated send returns the first turn", beginAgain},
		{"ten concurrent repeats begin one turn", beginTenTimes},
		{"waiting repeat is woken when the first send begins", wokenRepeat},
		{"idempotency key of a different request is refused", conflict},
		{"refused request can be sent again", refusalForgotten},
		{"idempotency keys are per owner", keyOfOwner},
		{"keys of a deleted session are forgotten", deletedForgotten},
	}
}

// request returns an idempotency key with a digest of the request's text.
func request(key, text string) *conversation.Idempotency {
	return &conversation.Idempotency{Key: key, Digest: sha256.Sum256([]byte(text))}
}

// once returns a question with an idempotency key. The key's digest is the digest of content.
func once(sessionID, content, key string) conversation.NewTurn {
	turn := question(sessionID, content)
	turn.Idempotency = request(key, content)
	return turn
}

// replayed repeats the send of a turn. The store must return the ids of the first send and begin no turn.
func (s *subject) replayed(t *testing.T, turn conversation.NewTurn, first conversation.TurnStart) {
	t.Helper()
	again, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	must(t, err, "BeginTurn")
	if again.Replayed == nil || again.Queued != nil {
		t.Fatalf("a repeated send returned %+v, want a replay", again)
	}
	same(t, "the turn", *again.Replayed, conversation.Replayed{SentID: first.Message.ID, ReplyID: first.Reply.ID})
}

func createAgain(t *testing.T, s *subject) {
	session := plain()
	session.Idempotency = request("k", "a")
	first := s.create(t, session)
	again, err := s.store.CreateSession(s.ctx, s.owner, session)
	must(t, err, "CreateSession")
	same(t, "the result of CreateSession", again, conversation.SessionCreated{Session: first, Replayed: true})
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 10})
	must(t, err, "Sessions")
	same(t, "the number of sessions", len(page.Sessions), 1)
}

func beginAgain(t *testing.T, s *subject) {
	session := s.create(t, plain())
	turn := once(session.ID, "hello", "k")
	first := s.begin(t, turn)
	repeat := once(session.ID, "hello", "k")
	s.replayed(t, repeat, first)
	repeat.OnBusy = conversation.Reject
	s.replayed(t, repeat, first)
	s.end(t, first.Key, answer("done"))
	s.replayed(t, repeat, first)
	same(t, "the number of messages", len(s.history(t, session.ID)), 2)
	s.end(t, s.begin(t, question(session.ID, "next")).Key, answer("done"))
	s.replayed(t, repeat, first)
}

func beginTenTimes(t *testing.T, s *subject) {
	session := s.create(t, plain())
	var sends sync.WaitGroup
	var mu sync.Mutex
	replies := map[string]int{}
	for range 10 {
		sends.Go(func() {
			b, err := s.store.BeginTurn(s.ctx, s.owner, once(session.ID, "hello", "k"))
			if err != nil || b.Queued != nil {
				t.Errorf("BeginTurn: %+v, %v", b, err)
				return
			}
			id := b.Reply.ID
			if b.Replayed != nil {
				id = b.Replayed.ReplyID
			}
			mu.Lock()
			defer mu.Unlock()
			replies[id]++
		})
	}
	sends.Wait()
	if len(replies) != 1 {
		t.Errorf("ten identical sends have the replies %v, want one reply", replies)
	}
	same(t, "the number of messages", len(s.history(t, session.ID)), 2)
}

func wokenRepeat(t *testing.T, s *subject) {
	session := s.create(t, plain())
	running := s.begin(t, question(session.ID, "running"))
	first, second, other := once(session.ID, "hello", "k"), once(session.ID, "hello", "k"), once(session.ID, "other", "o")
	firstPlace, otherPlace, secondPlace := s.queue(t, first), s.queue(t, other), s.queue(t, second)
	s.end(t, running.Key, answer("done"))
	granted(t, firstPlace)
	begun := s.begin(t, first)
	granted(t, secondPlace) // although another waiter is ahead in the queue
	s.replayed(t, second, begun)
	s.end(t, begun.Key, answer("done"))
	granted(t, otherPlace)
	s.end(t, s.begin(t, other).Key, answer("done"))
	s.end(t, s.begin(t, question(session.ID, "free")).Key, answer("done")) // succeeds only if the queue is empty
}

func conflict(t *testing.T, s *subject) {
	session := s.create(t, plain())
	s.end(t, s.begin(t, once(session.ID, "hello", "k")).Key, answer("done"))
	before := s.session(t, session.ID)
	_, err := s.store.BeginTurn(s.ctx, s.owner, once(session.ID, "other", "k"))
	wantError(t, "BeginTurn", err, conversation.ErrIdempotencyConflict)
	made := plain()
	made.Idempotency = request("k", "a session")
	_, err = s.store.CreateSession(s.ctx, s.owner, made)
	wantError(t, "CreateSession", err, conversation.ErrIdempotencyConflict)
	same(t, "the session", s.session(t, session.ID), before)
}

func refusalForgotten(t *testing.T, s *subject) {
	session := s.create(t, plain())
	running := s.begin(t, question(session.ID, "running"))
	turn := once(session.ID, "hello", "k")
	turn.OnBusy = conversation.Reject
	_, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	wantError(t, "BeginTurn", err, conversation.ErrSessionBusy)
	s.end(t, running.Key, answer("done"))
	begun := s.begin(t, turn)
	same(t, "the message", begun.Message.Content, "hello")
}

func keyOfOwner(t *testing.T, s *subject) {
	session := plain()
	session.Idempotency = request("k", "a")
	s.create(t, session)
	for _, mode := range []conversation.Mode{conversation.Live, conversation.Test} {
		owner := conversation.Owner{Account: s.owner.Account + "'s neighbour", Mode: mode}
		other := plain()
		other.Idempotency = request("k", "b")
		s.as(owner).create(t, other)
	}
}

func deletedForgotten(t *testing.T, s *subject) {
	session := plain()
	session.Idempotency = request("made", "a")
	made := s.create(t, session)
	turn := once(made.ID, "hello", "sent")
	s.end(t, s.begin(t, turn).Key, answer("done"))
	_, err := s.store.DeleteSession(s.ctx, s.owner, made.ID)
	must(t, err, "DeleteSession")
	_, err = s.store.BeginTurn(s.ctx, s.owner, turn)
	wantError(t, "BeginTurn", err, conversation.ErrSessionNotFound)
	if again := s.create(t, session); again.ID == made.ID {
		t.Error("a repeated create created the deleted session again")
	}
}
