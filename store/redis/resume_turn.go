package redis

import (
	"context"
	"time"

	"parley/conversation"
)

var resumeTurnScript = newScript("resume_turn", wakes|idempotent)

// ResumeTurn implements conversation.Nodes. If it returns ErrMessageNotFound, the waiter is void for a minute: BeginTurn with
// this waiter returns conversation.ErrUnavailable. A BeginTurn that was sent earlier may still arrive, and must not begin a turn.
func (s *Store) ResumeTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	tag := tagOfOwner(owner)
	live := liveMember(tag, turn.SessionID, turn.Waiter)
	asked := time.Now()
	reply, err := s.runWith(ctx, resumeTurnScript, tag, []string{sessionKey(tag, turn.SessionID)}, s.turns.beginning(s.node, live),
		turn.SessionID, turn.Waiter, s.node)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	parts := list(reply)
	if outcome(parts) == "begun" {
		return s.begun(owner, &turn, parts, asked)
	}
	s.turns.notBegun(live)
	return conversation.TurnStart{}, refusedTurn(ctx, parts)
}
