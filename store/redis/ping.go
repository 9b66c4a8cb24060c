package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

var pingScript = newScript("ping", idempotent|durable)

// Ping returns nil if the store accepts writes, and an error that wraps conversation.ErrUnavailable if it does not: the server is
// read-only, out of memory, or cannot save, or too few replicas acknowledge. In a Cluster, one such master is enough.
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

// mayWrite is a script that writes nothing. A server that cannot write refuses it, because its shebang lacks the flag no-writes.
const mayWrite = "#!lua\nreturn 1"
