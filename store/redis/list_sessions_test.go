package redis

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// addExpired adds n ids of one user's expired sessions to the indices. The ids encode the time at and the milliseconds after it.
func addExpired(t *testing.T, s *Store, owner conversation.Owner, n int, at time.Time) {
	t.Helper()
	tag, pipe := tagOfOwner(owner), s.db.Pipeline()
	for i := range n {
		id := conversation.NewID(conversation.SessionPrefix, conversation.TimeOf(at).Add(time.Duration(i)*time.Millisecond), "")
		pipe.ZAdd(t.Context(), expiryKey(tag), redis.Z{Score: float64(i), Member: id + ":" + aUser})
		pipe.ZAdd(t.Context(), sessionsKey(tag), redis.Z{Member: id})
		pipe.ZAdd(t.Context(), userSessionsKey(tag, aUser), redis.Z{Member: id})
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
}

// bothIndices holds a query for each index that Sessions reads.
var bothIndices = map[string]conversation.SessionQuery{"all sessions": {}, "sessions of a user": {UserID: aUser}}

// TestSessions_SecondsBeforeAndAfterExpiry_ListedUntilExpiry checks that the lower bound of the ids hides no session that exists.
func TestSessions_SecondsBeforeAndAfterExpiry_ListedUntilExpiry(t *testing.T) {
	t.Parallel()
	server := redistest.SingleWithClock(t)
	s, owner := open(t, server.URL), newOwner()
	session := newSession(t, s, owner)
	const margin = 10 * time.Second // the clock also runs on during the test
	server.Advance(oneDay - margin)
	for index, query := range bothIndices {
		query.Limit = 5
		page, err := s.Sessions(t.Context(), owner, query)
		must(t, err)
		same(t, index+", before the expiry", page, conversation.SessionPage{Sessions: []conversation.Session{session}})
	}
	server.Advance(margin)
	for index, query := range bothIndices {
		query.Limit = 5
		page, err := s.Sessions(t.Context(), owner, query)
		must(t, err)
		same(t, index+", after the expiry", page, conversation.SessionPage{})
	}
}

// TestSessions_FewAndManyExpired_SameCommands lists the only session of owners with expired sessions that are not pruned yet. The
// smaller number of expired sessions exceeds what the operations prune.
func TestSessions_FewAndManyExpired_SameCommands(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	_, err := s.Sessions(t.Context(), newOwner(), conversation.SessionQuery{Limit: 1}) // loads the script
	must(t, err)
	counted := make(map[string]map[string]int)
	for _, expired := range []int{1000, 10_000} {
		owner := newOwner()
		session := newSession(t, s, owner)
		addExpired(t, s, owner, expired, time.Now().Add(-oneDay-time.Minute))
		for index, query := range bothIndices {
			for _, query.Limit = range []int{1, 20} {
				name := fmt.Sprintf("%s, at most %d", index, query.Limit)
				calls, _ := commands(t, server, func() {
					page, err := s.Sessions(t.Context(), owner, query)
					must(t, err)
					same(t, name, page, conversation.SessionPage{Sessions: []conversation.Session{session}})
				})
				if few := counted[name]; few != nil && !maps.Equal(calls, few) {
					t.Errorf("%s: the commands are %v for few expired sessions, and %v for many", name, few, calls)
				}
				counted[name] = calls
			}
		}
	}
}

// TestSessions_ExpiredIDsAheadOfClock_RemovedInSteps lists two sessions of an owner whose newer sessions have expired. The ids of
// the expired sessions ran ahead of the clock. No script may skip more than readAgain ids, and no list may skip them again.
func TestSessions_ExpiredIDsAheadOfClock_RemovedInSteps(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	const expired = 10 * readAgain
	for index, query := range bothIndices {
		for limit := 1; limit <= 3; limit++ {
			owner := newOwner()
			older, newer := newSession(t, s, owner), newSession(t, s, owner)
			addExpired(t, s, owner, expired, time.Now().Add(time.Hour))
			must(t, s.db.Del(t.Context(), expiryKey(tagOfOwner(owner))).Err()) // keeps the scripts from pruning
			query.Limit = limit
			want := conversation.SessionPage{Sessions: []conversation.Session{newer, older}[:min(limit, 2)], More: limit == 1}
			for _, scripts := range []int{1 + expired/readAgain, 1} {
				calls, _ := commands(t, server, func() {
					page, err := s.Sessions(t.Context(), owner, query)
					must(t, err)
					same(t, index, page, want)
				})
				if got := calls["zrange"]; got > scripts {
					t.Errorf("%s, at most %d: %d scripts, want %d", index, limit, got, scripts)
				} else if calls["hmget"] > got*readAgain {
					t.Errorf("%s, at most %d: %d sessions read in %d scripts", index, limit, calls["hmget"], got)
				}
			}
		}
	}
}
