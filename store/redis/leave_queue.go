package redis

import (
	"context"

	"parley/conversation"
)

var leaveQueueScript = newScript("leave_queue", wakes|idempotent)

// LeaveQueue implements conversation.Store.
func (s *Store) LeaveQueue(ctx context.Context, owner conversation.Owner, sessionID, waiter string) error {
	tag := tagOfOwner(owner)
	_, err := s.run(ctx, leaveQueueScript, tag, []string{sessionKey(tag, sessionID)}, sessionID, waiter)
	s.turns.notBegun(liveMember(tag, sessionID, waiter))
	return err
}
