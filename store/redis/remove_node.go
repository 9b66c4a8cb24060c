package redis

import "context"

var removeNodeScript = newScript("remove_node", idempotent)

// removeNode removes a node from the nodes if it is still dead. It reports whether it has removed the node.
func (s *Store) removeNode(ctx context.Context, node string) (bool, error) {
	reply, err := s.run(ctx, removeNodeScript, "", []string{nodesKey}, node, s.membership.deadAfter.Milliseconds())
	return integer(reply) == 1, err
}
