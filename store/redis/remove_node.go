package redis

import "context"

var removeNodeScript = newScript("remove_node", idempotent)

// removeNode removes a node from the list of nodes, unless the node has sent a heartbeat again. It reports whether it removed the
// node.
func (s *Store) removeNode(ctx context.Context, node string) (bool, error) {
	reply, err := s.run(ctx, removeNodeScript, "", []string{nodesKey}, node, s.membership.deadAfter.Milliseconds())
	return integer(reply) == 1, err
}
