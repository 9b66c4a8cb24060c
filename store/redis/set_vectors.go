package redis

import (
	"context"

	"parley/conversation"
)

var setVectorsScript = newScript("set_vectors", idempotent)

// SetVectors implements conversation.Store.
func (s *Store) SetVectors(ctx context.Context, owner conversation.Owner, sessionID string, vectors []conversation.ExchangeVector) error {
	tag := tagOfOwner(owner)
	args := make([]any, 0, 2*len(vectors)+1)
	args = append(args, sessionID)
	for _, v := range vectors {
		args = append(args, v.Reply, []byte(v.Vector))
	}
	_, err := s.run(ctx, setVectorsScript, tag, []string{sessionKey(tag, sessionID)}, args...)
	return err
}
