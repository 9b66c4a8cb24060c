package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// liveTurns tracks the members of this node's set of live turns (schema.go). Other nodes find this node's turns in the set if
// this node dies. BeginTurn adds the member in the same round trip as its script. The set is in another slot, so adding a member
// cannot depend on the script's result. So the set may name turns that did not begin or have ended; a later round trip removes
// them. In a Cluster, the script may succeed while adding the member fails. If the node then dies, suspect finds the turn.
//
// Methods may be called from any goroutine; calls with the same waiter must not overlap.
type liveTurns struct {
	mu      sync.Mutex
	members map[conversation.TurnKey]string // guarded by mu; the member of each live turn of this process
	live    map[string]struct{}             // guarded by mu; the values of members, as a set
	stale   []string                        // guarded by mu; members that must be removed from the set in Redis
	pending map[string]struct{}             // guarded by mu; members whose turn may be beginning or queued
	removed map[string]time.Time            // guarded by mu; members removed in the last removedFor, with the time of removal
	doubted bool                            // guarded by mu; doubt was called after the last call of over
}

// One round trip removes staleAtOnce members at most.
const staleAtOnce = 64

// liveTurns remembers a removed member for removedFor, because a fail-over may lose the end of its turn. The node notices the
// fail-over much sooner.
const removedFor = time.Minute

// beginning returns the commands to send in the same round trip as a script that may begin a turn. They add the turn's member to
// the set in Redis, and remove stale members.
func (l *liveTurns) beginning(node, member string) [][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = slices.DeleteFunc(l.stale, func(stale string) bool { return stale == member })
	if l.pending == nil {
		l.pending = make(map[string]struct{})
	}
	l.pending[member] = struct{}{}
	beside := [][]any{{"sadd", liveKey(node), member}}
	if remove := l.takeStaleLocked(node); remove != nil {
		beside = append(beside, remove)
	}
	return beside
}

// takeStaleLocked moves up to staleAtOnce members from stale to removed. It returns the command that removes them from the set in
// Redis. It returns nil if no member is stale.
func (l *liveTurns) takeStaleLocked(node string) []any {
	if len(l.stale) == 0 {
		return nil
	}
	n := min(len(l.stale), staleAtOnce)
	remove := make([]any, 0, 2+n)
	remove = append(remove, "srem", liveKey(node))
	if l.removed == nil {
		l.removed = make(map[string]time.Time)
	}
	for _, member := range l.stale[:n] {
		remove = append(remove, member)
		if _, known := l.removed[member]; !known {
			l.removed[member] = time.Now()
		}
	}
	l.stale = slices.Delete(l.stale, 0, n)
	return remove
}

// begun records a turn of this process that has begun, and its member.
func (l *liveTurns) begun(key conversation.TurnKey, member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.members == nil {
		l.members, l.live = make(map[conversation.TurnKey]string), make(map[string]struct{})
	}
	l.members[key], l.live[member] = member, struct{}{}
	delete(l.pending, member)
}

// ended makes the member of an ended turn stale.
func (l *liveTurns) ended(key conversation.TurnKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if member, ok := l.members[key]; ok {
		delete(l.members, key)
		delete(l.live, member)
		l.stale = append(l.stale, member)
	}
}

// notBegun makes a member stale, unless the member's turn is live.
func (l *liveTurns) notBegun(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, member)
	if _, live := l.live[member]; !live && !slices.Contains(l.stale, member) {
		l.stale = append(l.stale, member)
	}
}

// doubt makes this node check its last writes: the ends of its turns, and the journals of its live replies. A caller calls it after
// a sign that a server may have lost writes: an error, a lost connection, or a new master of a Cluster.
func (s *Store) doubt() {
	s.turns.doubt()
	s.journal.doubt()
}

// doubt makes the next call of over include turns that have ended.
func (l *liveTurns) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubted = true
}

// over returns the members whose turns are neither live nor beginning in this process, but may be live in the store. members
// is the set in Redis. The turn of a stale or removed member has ended. So over returns such a member only after doubt,
// because a new master may lack the end of the turn, or if a removed member is in the set again.
func (l *liveTurns) over(members []string, now time.Time) (over []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.removed, func(_ string, at time.Time) bool { return now.Sub(at) > removedFor })
	skip := make(map[string]struct{}, len(members)+len(l.stale))
	if l.doubted {
		members = slices.Concat(members, l.stale, slices.Collect(maps.Keys(l.removed)))
		l.doubted = false
	} else {
		for _, member := range l.stale {
			skip[member] = struct{}{}
		}
	}
	for _, member := range members {
		_, live := l.live[member]
		_, pending := l.pending[member]
		if _, known := skip[member]; !known && !live && !pending {
			over = append(over, member)
		}
		skip[member] = struct{}{}
	}
	return over
}

// reclaim ends turns of this node that are live in the store, but have ended in this process: a fail-over may have lost their
// endings. Without reclaim, their sessions would stay busy until the node dies. reclaim returns the number of turns that it
// ended.
func (s *Store) reclaim(ctx context.Context, count func(text string) int) (int, error) {
	members, err := s.liveMembers(ctx, s.node)
	if err != nil {
		return 0, err
	}
	ended := 0
	for chunk := range slices.Chunk(s.turns.over(members, time.Now()), orphansAtOnce) {
		n, errChunk := s.endOrphans(ctx, orphansOf(s.node, chunk), count)
		if ended, err = ended+n, errors.Join(err, errChunk); errChunk != nil {
			continue // a server of a Cluster may be down
		}
		for _, member := range chunk {
			s.turns.notBegun(member)
		}
	}
	return ended, errors.Join(err, s.removeStale(ctx))
}

// removeStale removes all stale members from the set in Redis. Afterwards the set is empty if this node has no live turn.
func (s *Store) removeStale(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for {
		s.turns.mu.Lock()
		remove := s.turns.takeStaleLocked(s.node)
		s.turns.mu.Unlock()
		if remove == nil {
			return nil
		}
		if err := s.db.Do(ctx, remove...).Err(); err != nil {
			return fault(err)
		}
	}
}
