package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// runs is a hook of the go-redis client. It counts how often a script is run in pipelines.
type runs struct {
	redis.Hook // nil: only ProcessPipelineHook is called
	script     *script
	n          atomic.Int64
}

func (r *runs) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *runs) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (r *runs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		for _, cmd := range commands {
			if len(cmd.Args()) > 1 && cmd.Args()[1] == r.script.compiled().digest {
				r.n.Add(1)
			}
		}
		return next(ctx, commands)
	}
}

// reclaimNow makes the next EndOrphans look at the turns of the node itself.
func reclaimNow(s *Store) {
	s.membership.mu.Lock()
	defer s.membership.mu.Unlock()
	s.membership.reclaimAt = time.Time{}
}

// TestReclaim_EndedTurns_ReadOnlyAfterDoubt ends turns. A turn that has ended must cost no script afterwards. After a sign of a
// fail-over, each turn of the last minute costs one script.
func TestReclaim_EndedTurns_ReadOnlyAfterDoubt(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s, wakeUps := join(t, server.URL)
	must(t, s.db.ScriptLoad(t.Context(), findOrphanScript.compiled().text).Err()) // otherwise each call could be sent twice
	finds := &runs{script: findOrphanScript}
	s.db.AddHook(finds)
	look := func(what string, want int64) {
		t.Helper()
		reclaimNow(s)
		finds.n.Store(0)
		n, err := s.EndOrphans(t.Context(), lengthOf)
		must(t, err)
		same(t, what+": number of turns that EndOrphans has ended", n, 0)
		same(t, what+": number of turns that EndOrphans has read", finds.n.Load(), want)
	}
	look("before the first turn", 0)
	owner := newOwner()
	const turns = 5
	for range turns {
		key := liveTurn(t, s, owner)
		end(t, s, key)
		look("after the end of a turn", 0)
	}
	live := liveTurn(t, s, owner)
	look("with a live turn", 0)
	server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	wakeUps.await(t, "")
	look("after the inbox has lost its connection", turns)
	look("one search later", 0)
	end(t, s, live)
	look("after all turns", 0)
	s.turns.doubt()
	same(t, "turns to read after a minute", len(s.turns.over(nil, time.Now().Add(2*removedFor))), 0)
	same(t, "remembered turns after a minute", len(s.turns.removed), 0)
}

// TestReclaim_FailOverLostEnd_TurnEndedAgain restores the keys of a session from before the end of its turn, as if a replica
// without the last writes became the master.
func TestReclaim_FailOverLostEnd_TurnEndedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s, _ := join(t, server.URL)
	key := liveTurn(t, s, newOwner())
	before := map[string]string{}
	names, err := s.db.Keys(t.Context(), "*"+key.SessionID+"*").Result()
	must(t, err)
	for _, name := range names {
		before[name] = s.db.Dump(t.Context(), name).Val()
	}
	end(t, s, key)
	must(t, s.removeStale(t.Context()))
	for name, value := range before {
		must(t, s.db.RestoreReplace(t.Context(), name, time.Hour, value).Err())
	}
	session, err := s.Session(t.Context(), key.Owner, key.SessionID)
	must(t, err)
	same(t, "the live reply after the fail-over", session.LiveReply, key.ReplyID)
	s.topology.learn([]string{"the new master"})
	reclaimNow(s)
	endTurns(t, s, 1)
	m, err := s.Message(t.Context(), key.Owner, key.SessionID, key.ReplyID)
	must(t, err)
	same(t, "the status of the reply", m.Status, stream.Interrupted)
}

// A fail-over can lose a turn and its journal before the first text of the reply. After a sign of the fail-over, the first text must
// not create the journal again, because the new key would never expire.
func TestJournal_LostBeforeFirstText_NotCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, sign := range map[string]func(s *Store, server *redistest.Server, wakeUps *wakeUps){
		"new master": func(s *Store, _ *redistest.Server, _ *wakeUps) { s.topology.learn([]string{"the new master"}) },
		"lost connection of inbox": func(_ *Store, server *redistest.Server, w *wakeUps) {
			server.Do("CLIENT", "KILL", "TYPE", "pubsub")
			w.await(t, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Single(t)
			s, w := join(t, server.URL)
			key := liveTurn(t, s, newOwner())
			journal := journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence)
			must(t, s.db.Del(t.Context(), journal).Err())
			sign(s, server, w)
			must(t, s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{segment(key, 0, "private text")}))
			same(t, "number of journals", s.db.Exists(t.Context(), journal).Val(), 0)
		})
	}
}
