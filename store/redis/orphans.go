package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"parley/conversation"
)

// One round trip reads or ends up to orphansAtOnce orphans of a node: enough to end thousands a second, and few enough not to
// block Redis.
const orphansAtOnce = 64

// orphan is a turn that EndOrphans may have to end: the turn's node is dead or unknown, or is this node, which no longer writes
// the reply.
type orphan struct {
	node    string // the node that began the turn
	owner   conversation.Owner
	session string // the session's id
	waiter  string // the waiter that began the turn; "" if unknown
}

// key returns the key of the orphan's session.
func (o *orphan) key() string { return sessionKey(tagOfOwner(o.owner), o.session) }

// EndOrphans implements conversation.Store. It ends three kinds of turns: turns of nodes without a heartbeat for deadAfter, turns
// of unknown nodes that suspect recorded, and turns of this node that are live only in the store (reclaim). Several nodes may
// call it at the same time: each turn is ended and counted once. Before Join, it does nothing. For deadAfter after Join, after an
// outage of Redis, and after a jump of the server's clock, it ends no turns of other nodes.
func (s *Store) EndOrphans(ctx context.Context, count func(text string) int) (int, error) {
	if !s.membership.joined() {
		return 0, nil
	}
	if err := s.beat(ctx); err != nil { // updates the list of dead nodes, which may be a second old
		return 0, err
	}
	now := time.Now()
	dead, unknown := s.membership.orphaned(now)
	ended, err := s.endOrphans(ctx, unknown, count)
	if err == nil {
		s.membership.clear(unknown)
	}
	if s.membership.reclaimDue(now) {
		n, errOwn := s.reclaim(ctx, count)
		if ended, err = ended+n, errors.Join(err, errOwn); errOwn == nil {
			s.membership.reclaimed(now)
		}
	}
	for _, node := range dead {
		n, errDead := s.endOrphansOf(ctx, node, count)
		ended, err = ended+n, errors.Join(err, errDead)
	}
	return ended, err
}

// endOrphansOf ends the turns of a dead node, and removes the node from the list of nodes. If it cannot end some turns, because a
// server of a Cluster is down, it ends the others, and the node stays in the list.
func (s *Store) endOrphansOf(ctx context.Context, node string, count func(text string) int) (int, error) {
	members, err := s.liveMembers(ctx, node)
	if err != nil {
		return 0, err
	}
	ended := 0
	for chunk := range slices.Chunk(members, orphansAtOnce) {
		n, errChunk := s.endOrphans(ctx, orphansOf(node, chunk), count)
		if errChunk == nil {
			errChunk = s.removeLive(ctx, node, chunk)
		}
		ended, err = ended+n, errors.Join(err, errChunk)
	}
	if err == nil {
		_, err = s.removeNode(ctx, node)
	}
	return ended, err
}

// orphansOf returns the turns that members of a node's set of live turns name. It skips malformed members.
func orphansOf(node string, members []string) []orphan {
	orphans := make([]orphan, 0, len(members))
	for _, member := range members {
		if o, ok := orphanOf(node, member); ok {
			orphans = append(orphans, o)
		}
	}
	return orphans
}

// orphanOf is the inverse of liveMember: it returns the turn that member names. It reports whether member is valid.
func orphanOf(node, member string) (orphan, bool) {
	tag, rest, _ := strings.Cut(member, " ")
	sessionID, waiter, _ := strings.Cut(rest, " ")
	owner, ok := ownerOfTag(tag)
	return orphan{node: node, owner: owner, session: sessionID, waiter: waiter}, ok
}

// liveMembers returns the members of a node's set of live turns.
func (s *Store) liveMembers(ctx context.Context, node string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	members, err := s.db.SMembers(ctx, liveKey(node)).Result()
	return members, fault(err)
}

// removeLive removes members from a node's set of live turns.
func (s *Store) removeLive(ctx context.Context, node string, members []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	gone := make([]any, len(members))
	for i, member := range members {
		gone[i] = member
	}
	return fault(s.db.SRem(ctx, liveKey(node), gone...).Err())
}

// RemoveExpired implements conversation.Store. In Redis, the keys of a session expire by themselves, so RemoveExpired does
// nothing. It asks for the next call in an hour. A node that follows an expired session learns from Poll that the session is
// gone.
func (s *Store) RemoveExpired(context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	return nil, conversation.TimeOf(time.Now().Add(time.Hour)), nil
}
