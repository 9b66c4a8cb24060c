package redis

import "context"

var setSocketsScript = newScript("set_sockets", idempotent)

// setSockets stores counts of this node, and renews their leases, in one round trip to each server.
func (s *Store) setSockets(ctx context.Context, counts []countOf) []error {
	calls := make([]call, len(counts))
	for i, c := range counts {
		tag := ownerTag(c.owner)
		calls[i] = call{
			setSocketsScript, []string{socketsKey(tag)}, []any{s.node, c.change, c.count, s.sockets.lease.Milliseconds()},
		}
	}
	_, errs := s.runAll(ctx, calls)
	return errs
}
