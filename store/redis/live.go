package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// liveTurns knows which members this node has in its set of live turns (schema.go), by which the others find its turns when it
// dies. A member is added in the round trip of the script that begins the turn. The set is in another slot, so adding cannot
// depend on what the script does: the set may name turns that did not begin or have ended, which a later round trip removes. It
// never lacks a live turn. Its methods may be called from any goroutine; those about one waiter must not overlap.
type liveTurns struct {
	mu      sync.Mutex
	members map[conversation.TurnKey]string // guarded by mu; by turns that have begun
	live    map[string]struct{}             // guarded by mu; the members' values
	stale   []string                        // guarded by mu; members to remove
	pending map[string]struct{}             // guarded by mu; members whose turn may be beginning
	removed map[string]time.Time            // guarded by mu; members removed lately, and when
}

// staleAtOnce is how many members one round trip removes.
const staleAtOnce = 64

// removedFor is how long removed members are remembered: longer than a fail-over stays unnoticed.
const removedFor = time.Minute

// beginning returns the commands to send beside a script that may begin a member's turn.
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

// takeStaleLocked returns the command that removes stale members; nil if there are none.
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
		l.removed[member] = time.Now()
	}
	l.stale = slices.Delete(l.stale, 0, n)
	return remove
}

// begun notes that a turn has begun.
func (l *liveTurns) begun(key conversation.TurnKey, member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.members == nil {
		l.members, l.live = make(map[conversation.TurnKey]string), make(map[string]struct{})
	}
	l.members[key], l.live[member] = member, struct{}{}
	delete(l.pending, member)
}

// ended notes that a turn has ended.
func (l *liveTurns) ended(key conversation.TurnKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if member, ok := l.members[key]; ok {
		delete(l.members, key)
		delete(l.live, member)
		l.stale = append(l.stale, member)
	}
}

// notBegun notes that a member's turn did not begin, unless it has.
func (l *liveTurns) notBegun(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, member)
	if _, live := l.live[member]; !live && !slices.Contains(l.stale, member) {
		l.stale = append(l.stale, member)
	}
}

// over returns those of the members, and of those removed lately, whose turns have ended or never began as far as this process
// knows. After a fail-over, the server may still have them live, because it lost what it was told last.
func (l *liveTurns) over(members []string, now time.Time) (over []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for member, at := range l.removed {
		if now.Sub(at) > removedFor {
			delete(l.removed, member)
		} else if !slices.Contains(members, member) {
			members = append(members, member)
		}
	}
	for _, member := range members {
		_, live := l.live[member]
		_, pending := l.pending[member]
		if !live && !pending {
			over = append(over, member)
		}
	}
	return over
}

// reclaim ends the turns of this node that are live in the store only: a fail-over may have lost their ends, and the sessions
// would stay busy as long as the node lives. It returns how many there were.
func (s *Store) reclaim(ctx context.Context, count func(text string) int) (int, error) {
	members, err := s.liveMembers(ctx, s.node)
	if err != nil {
		return 0, err
	}
	ended := 0
	for chunk := range slices.Chunk(s.turns.over(members, time.Now()), orphansAtOnce) {
		n, err := s.endOrphans(ctx, orphansOf(s.node, chunk), count)
		if ended += n; err != nil {
			return ended, err
		}
		for _, member := range chunk {
			s.turns.notBegun(member)
		}
	}
	return ended, s.removeStale(ctx)
}

// removeStale removes all stale members, so that the set is empty if no turn is live.
func (s *Store) removeStale(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
