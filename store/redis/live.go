package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"parley/conversation"
)

// liveTurns knows what this node has in its set of live turns (schema.go), by which the others find what it leaves behind when
// it dies. A turn is added in the trip of the script that begins it. As the set lies in another slot, that cannot depend on
// what the script does; so the set may name turns that did not begin, or are over: these are removed with a later trip. It never
// lacks one that is live. Its methods may be called from any goroutine; those about one waiter come one after the other.
type liveTurns struct {
	mu      sync.Mutex
	members map[conversation.TurnKey]string // guarded by mu; of turns that have begun
	live    map[string]struct{}             // guarded by mu; the members' values
	stale   []string                        // guarded by mu; what is to be removed
	pending map[string]struct{}             // guarded by mu; members whose turn may be beginning
	removed map[string]time.Time            // guarded by mu; members that were lately removed, and when
}

// staleAtOnce is how many members one trip removes.
const staleAtOnce = 64

// removedFor is how long it is known what was removed: longer than a fail-over goes unnoticed.
const removedFor = time.Minute

// beginning returns what is sent beside a script that may begin the turn of a member.
func (l *liveTurns) beginning(node, member string) [][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = slices.DeleteFunc(l.stale, func(stale string) bool { return stale == member })
	if l.pending == nil {
		l.pending = make(map[string]struct{})
	}
	l.pending[member] = struct{}{}
	beside := [][]any{{"sadd", liveKey(node), member}}
	if gone := l.takeStale(node); gone != nil {
		beside = append(beside, gone)
	}
	return beside
}

// takeStale returns the command that removes what is to be removed; nil if nothing is. Called with mu held.
func (l *liveTurns) takeStale(node string) []any {
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

// ended notes that a turn is over.
func (l *liveTurns) ended(key conversation.TurnKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if member, ok := l.members[key]; ok {
		delete(l.members, key)
		delete(l.live, member)
		l.stale = append(l.stale, member)
	}
}

// notBegun notes that the turn of a member did not begin, unless it has.
func (l *liveTurns) notBegun(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, member)
	if _, live := l.live[member]; !live && !slices.Contains(l.stale, member) {
		l.stale = append(l.stale, member)
	}
}

// over returns those of the members, and of those that were removed lately, whose turns are over, or never began, as far as
// this process knows: a server that knows less than it has said, after a fail-over, may have them live.
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

// reclaim ends the turns that the store has this node write, but the node does not: a fail-over may have lost their
// ends, and the sessions would be busy for as long as the node lives. It returns how many there were.
func (s *Store) reclaim(ctx context.Context, count func(text string) int) (int, error) {
	ctxCall, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	members, err := s.db.SMembers(ctxCall, liveKey(s.node)).Result()
	if err != nil {
		return 0, fault(err)
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

// removeStale removes what the set names for no reason any more, so that it is empty where nothing is live. Where it fails, more
// is named than there is.
func (s *Store) removeStale(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for {
		s.turns.mu.Lock()
		remove := s.turns.takeStale(s.node)
		s.turns.mu.Unlock()
		if remove == nil {
			return nil
		}
		if err := s.db.Do(ctx, remove...).Err(); err != nil {
			return fault(err)
		}
	}
}
