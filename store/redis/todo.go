package redis

import (
	"context"
	"time"

	"parley/conversation"
	"parley/stream"
)

// What follows is being built on the branch redis-nodes, which removes this file.

// Journal implements conversation.Store, without a guard against keys that have expired.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	if err := ctx.Err(); err != nil || len(batch) == 0 {
		return err
	}
	pipe := s.db.Pipeline()
	for i := range batch {
		key := &batch[i].Key
		pipe.SetRange(ctx, journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence), int64(batch[i].Offset), string(batch[i].Text))
	}
	_, err := pipe.Exec(ctx)
	return fault(err)
}

// EndOrphans implements conversation.Store, as far as to find none.
func (s *Store) EndOrphans(ctx context.Context, _ func(text string) int) (int, error) {
	return 0, ctx.Err()
}

// RemoveExpired implements conversation.Store: sessions expire by themselves.
func (s *Store) RemoveExpired(ctx context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	return nil, conversation.TimeOf(time.Now().Add(time.Hour)), ctx.Err()
}
