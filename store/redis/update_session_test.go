package redis

import (
	"errors"
	"testing"

	"parley/conversation"
	"parley/conversation/window"
)

// Nothing locks the session between the read of UpdateSession and its write. The function change stands for other nodes.

func TestUpdateSession_TurnBeginsMeanwhile_PolicyRefused(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	calls := 0
	_, err := s.UpdateSession(t.Context(), owner, session.ID, func(session *conversation.Session) error {
		if calls++; calls == 1 {
			_, err := s.BeginTurn(t.Context(), owner, aTurn(session.ID, "hello"))
			must(t, err)
		}
		session.Context.RetentionPolicy = conversation.Semantic
		return nil
	})
	if _, ok := errors.AsType[*conversation.SettingsError](err); !ok || calls != 2 {
		t.Errorf("after %d calls of change: error %v, want a *SettingsError after 2", calls, err)
	}
	after, err := s.Session(t.Context(), owner, session.ID)
	must(t, err)
	same(t, "the policy", after.Context.RetentionPolicy, conversation.FIFO)
}

func TestUpdateSession_AlwaysOvertaken_GivesUp(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	calls := 0
	_, err := s.UpdateSession(t.Context(), owner, session.ID, func(session *conversation.Session) error {
		calls++
		_, err := s.UpdateSession(t.Context(), owner, session.ID, func(*conversation.Session) error { return nil })
		return err
	})
	wantError(t, "UpdateSession", err, conversation.ErrUnavailable)
	same(t, "the calls of change", calls, updateAttempts)
}

// TestUpdateSession_TwoRoundTrips counts the round trips: one for the read, and one for the write.
func TestUpdateSession_TwoRoundTrips(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	brief := func(session *conversation.Session) error {
		session.Instructions, session.InstructionTokens = "Be brief.", 3
		return nil
	}
	_, err := s.UpdateSession(t.Context(), owner, session.ID, brief) // loads the script
	must(t, err)
	var counted trips
	s.db.AddHook(&counted)
	updated, err := s.UpdateSession(t.Context(), owner, session.ID, brief)
	must(t, err)
	same(t, "the round trips", counted.n.Load(), 2)
	same(t, "the instructions in a prompt", updated.Window().Instructions, 3+window.MessageOverhead)
}
