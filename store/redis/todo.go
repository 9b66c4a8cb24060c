package redis

import (
	"context"
	"time"

	"parley/conversation"
	"parley/stream"
)

// What follows is being built on the branch redis-nodes, which removes this file.

// Journal implements conversation.Store, as far as to keep nothing.
func (s *Store) Journal(ctx context.Context, _ []stream.Segment[conversation.TurnKey]) error {
	return ctx.Err()
}

// EndOrphans implements conversation.Store, as far as to find none.
func (s *Store) EndOrphans(ctx context.Context, _ func(text string) int) (int, error) {
	return 0, ctx.Err()
}

// RemoveExpired implements conversation.Store: sessions expire by themselves.
func (s *Store) RemoveExpired(ctx context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	return nil, conversation.TimeOf(time.Now().Add(time.Hour)), ctx.Err()
}
