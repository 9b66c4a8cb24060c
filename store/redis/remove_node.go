package redis

import "context"

var removeNodeScript = newScript("remove_node", idempotent)

// removeNode removes a dead node from the nodes. It reports whether the node was still dead.
func (s *Store) removeNode(ctx context.Context, node string) (bool, error) {
	reply, err := s.run(ctx, removeNodeScript, "", []string{nodesKey}, node, s.membership.deadAfter.Milliseconds())
	return integer(reply) == 1, err
}
