package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

var pingScript = newScript("ping", idempotent|durable)

// Ping reports whether the store accepts writes: nil, or an error that wraps conversation.ErrUnavailable. A server that only
// reads, is out of memory, or cannot save, is not ready; nor is a Cluster with one such master.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.run(ctx, pingScript, "", []string{readyKey}); err != nil {
		return err
	}
	nodes, clustered := s.db.(*redis.ClusterClient)
	if !clustered {
		return nil
	}
	return fault(nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.Eval(ctx, mayWrite, nil).Err()
	}))
}

// mayWrite is a script that writes nothing, but that a server refuses if it could not write.
const mayWrite = "#!lua\nreturn 1"
