package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

var pingScript = newScript("ping", idempotent|durable)

// Ping checks that the store accepts writes. It returns an error that wraps conversation.ErrUnavailable if the server is
// read-only, is out of memory or cannot save, or if too few replicas acknowledge a write. In a Cluster, it checks every master.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
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

// mayWrite is a script that writes nothing. Its shebang lacks the flag no-writes, so a server that cannot write refuses the
// script.
const mayWrite = "#!lua\nreturn 1"
