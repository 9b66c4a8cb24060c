package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// liveTurns tracks the members of this node's set of live turns (schema.go), in which other nodes find its turns if it dies. A
// member is added in the round trip of the script that begins the turn. The set is in another slot, so adding cannot depend on
// the script's result: the set may name turns that did not begin or have ended, which a later round trip removes. In a Cluster, a
// live turn is missing from the set if adding fails and the node dies before it repeats that; suspect covers this case. Its
// methods may be called from any goroutine; calls about one waiter must not overlap.
type liveTurns struct {
	mu      sync.Mutex
	members map[conversation.TurnKey]string // guarded by mu; the member of each turn that has begun
	live    map[string]struct{}             // guarded by mu; the values of members
	stale   []string                        // guarded by mu; members to remove
	pending map[string]struct{}             // guarded by mu; members whose turn may be beginning
	removed map[string]time.Time            // guarded by mu; when a member was removed, for removedFor
}

// One round trip removes staleAtOnce members at most.
const staleAtOnce = 64

// Removed members are remembered for removedFor: longer than a fail-over stays unnoticed.
const removedFor = time.Minute

// beginning returns the commands to send beside a script that may begin a member's turn: they add the member and remove stale
// ones.
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

// takeStaleLocked takes up to staleAtOnce stale members and returns the command that removes them from the set, nil if there are
// none.
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

// begun adds a turn that has begun.
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

// notBegun makes a member stale, unless its turn has begun after all.
func (l *liveTurns) notBegun(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, member)
	if _, live := l.live[member]; !live && !slices.Contains(l.stale, member) {
		l.stale = append(l.stale, member)
	}
}

// over returns the members, and the lately removed ones, whose turns this process knows to have ended or never begun. After a
// fail-over, such a turn may still be live in the store, because the new master lacks the last writes.
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

// reclaim ends the turns of this node that are live only in the store: a fail-over may have lost their endings, and the sessions
// would stay busy as long as the node lives. It returns the number of turns that it ended.
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

// removeStale removes all stale members from the set, so that the set is empty if no turn is live.
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
