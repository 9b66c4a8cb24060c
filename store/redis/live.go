package redis

import (
	"context"
	"slices"
	"sync"

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
}

// staleAtOnce is how many members one trip removes.
const staleAtOnce = 64

// beginning returns what is sent beside a script that may begin the turn of a member.
func (l *liveTurns) beginning(node, member string) [][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = slices.DeleteFunc(l.stale, func(stale string) bool { return stale == member })
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
	for _, member := range l.stale[:n] {
		remove = append(remove, member)
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
	if _, live := l.live[member]; !live && !slices.Contains(l.stale, member) {
		l.stale = append(l.stale, member)
	}
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
