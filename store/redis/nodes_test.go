package redis

import (
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// wakeUps records the calls of a node's notify function: ids of sessions, and "" for any session.
type wakeUps struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (p *wakeUps) notify(sessionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, sessionID)
}

// take returns the calls since the last take.
func (p *wakeUps) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// await waits until the node is notified of a session; "" stands for any session.
func (p *wakeUps) await(t *testing.T, sessionID string) {
	t.Helper()
	await(t, "a wake-up for "+sessionID, func() bool { return slices.Contains(p.take(), sessionID) })
}

// await calls ready until ready returns true. After a minute it fails the test; only a hang takes so long.
func await(t *testing.T, what string, ready func() bool) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// join opens a store and makes it a node. It returns the store and a record of its wake-ups.
func join(t *testing.T, url string) (*Store, *wakeUps) {
	t.Helper()
	s, p := open(t, url), new(wakeUps)
	must(t, s.Join(t.Context(), p.notify))
	return s, p
}

// suspend stops the heartbeat of a node if asleep is true, as if the process were suspended. Otherwise it resumes the heartbeat.
func suspend(s *Store, asleep bool) {
	s.membership.mu.Lock()
	defer s.membership.mu.Unlock()
	s.membership.asleep = asleep
}

// lengthOf counts each byte of a text as a token.
func lengthOf(text string) int { return len(text) }

func segment(key conversation.TurnKey, offset int, text string) stream.Segment[conversation.TurnKey] {
	return stream.Segment[conversation.TurnKey]{Key: key, Offset: offset, Text: []byte(text)}
}

func journalText(t *testing.T, s *Store, key conversation.TurnKey, offset int, text string) {
	t.Helper()
	must(t, s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{segment(key, offset, text)}))
}

func poll(t *testing.T, s *Store, followed ...conversation.Followed) []conversation.Update {
	t.Helper()
	updates, err := s.Poll(t.Context(), followed)
	must(t, err)
	if len(updates) != len(followed) {
		t.Fatalf("Poll returned %d updates for %d sessions", len(updates), len(followed))
	}
	return updates
}

func followedReply(key conversation.TurnKey, offset int) conversation.Followed {
	return conversation.Followed{Owner: key.Owner, SessionID: key.SessionID, Reply: key.ReplyID, Offset: offset}
}

// onBoth runs a test twice: on a single server and on a Cluster.
func onBoth(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Single(t).URL)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Cluster(t).URL)
	})
}

func TestSaveSummary_FollowingNode_Notified(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		writer, writerWakeUps := join(t, url)
		viewer, viewerWakeUps := join(t, url)
		key := liveTurn(t, writer, newOwner())
		end(t, writer, key)
		_, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
		must(t, err)
		followed := conversation.Followed{Owner: key.Owner, SessionID: key.SessionID}
		same(t, "the summary before", poll(t, viewer, followed)[0].Summary, conversation.Summary{})
		viewerWakeUps.take()
		writerWakeUps.take()
		summary := conversation.Summary{Text: "so far", Tokens: 7, Last: key.ReplyID, Count: 2, Replaced: 99}
		must(t, writer.SaveSummary(t.Context(), key.Owner, key.SessionID, "", summary, conversation.Usage{}))
		viewerWakeUps.await(t, key.SessionID)
		summary.Text = ""
		same(t, "the summary", poll(t, viewer, followed)[0].Summary, summary)
	})
}

func TestJournal_FollowingNode_NotifiedEachTick(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		writer, writerWakeUps := join(t, url)
		viewer, viewerWakeUps := join(t, url)
		key := liveTurn(t, writer, newOwner())
		session, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
		must(t, err)
		if session.LiveReply != key.ReplyID || session.ID != key.SessionID || session.Fence != key.Fence {
			t.Errorf("Follow returned %+v", session)
		}
		writerWakeUps.await(t, key.SessionID) // from now on, the writer knows the follower
		for offset, text := 0, ""; offset < 100; offset = len(text) {
			viewerWakeUps.take()
			journalText(t, writer, key, offset, "ä text ")
			text += "ä text "
			viewerWakeUps.await(t, key.SessionID)
			if g := poll(t, viewer, followedReply(key, offset))[0]; string(g.Text) != "ä text " || g.Stop != "" || g.Gone {
				t.Fatalf("after the wake-up for offset %d, the update is %+v", offset, g)
			}
		}
		other := followedReply(key, 0)
		other.Reply = "msg_another"
		gone := followedReply(key, 0)
		gone.SessionID = "session_0123456789abcdef"
		foreign := followedReply(key, 0)
		foreign.Owner = newOwner()
		updates := poll(t, viewer, gone, other, foreign)
		if !updates[0].Gone || updates[1].Gone || updates[1].Text != nil || updates[1].Session.LiveReply != key.ReplyID || !updates[2].Gone {
			t.Errorf("updates of a session that is gone, of another reply, for another owner: %+v", updates)
		}
		_, err = viewer.Follow(t.Context(), gone.Owner, gone.SessionID)
		wantError(t, "Follow", err, conversation.ErrSessionNotFound)
	})
}

// TestPoll_ByWriter_FindsFollowerToNotify makes viewer a follower of a session without notifying writer. From its next poll on,
// writer must notify viewer.
func TestPoll_ByWriter_FindsFollowerToNotify(t *testing.T) {
	t.Parallel()
	url := shared.Start(t)
	writer, _ := join(t, url)
	viewer, viewerWakeUps := join(t, url)
	key := liveTurn(t, writer, newOwner())
	poll(t, viewer, followedReply(key, 0)) // unlike Follow, it does not notify writer
	journalText(t, writer, key, 0, "unheard")
	poll(t, writer, followedReply(key, 0))
	journalText(t, writer, key, 7, "heard")
	viewerWakeUps.await(t, key.SessionID)
	if more := viewerWakeUps.take(); len(more) > 0 {
		t.Errorf("the viewer got more wake-ups: %q", more)
	}
	writer.followers.sweep(time.Now().Add(conversation.FollowLease + time.Second))
	viewer.followers.sweep(time.Now().Add(conversation.FollowLease + time.Second))
	if len(writer.followers.of) != 0 || len(viewer.followers.renewed) != 0 {
		t.Error("sweep has not removed lapsed leases")
	}
}

// nodesOf returns the list of nodes in Redis: their ids.
func nodesOf(t *testing.T, s *Store) []string {
	t.Helper()
	nodes, err := s.db.ZRange(t.Context(), nodesKey, 0, -1).Result()
	must(t, err)
	return nodes
}

func TestClose_NodeRemovedUnlessTurnIsLive(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	stays, _ := join(t, url)
	leaves, _ := join(t, url)
	dies, _ := join(t, url)
	liveTurn(t, dies, newOwner())
	if err := stays.Join(t.Context(), func(string) {}); err == nil {
		t.Error("one process joined twice")
	}
	removed, err := leaves.removeNode(t.Context(), stays.node)
	must(t, err)
	same(t, "a living node was removed", removed, false)
	must(t, leaves.Close())
	must(t, dies.Close()) // other nodes must end its live turn, so it stays listed
	nodes := nodesOf(t, stays)
	if slices.Sort(nodes); !slices.Equal(nodes, slices.Sorted(slices.Values([]string{stays.node, dies.node}))) {
		t.Errorf("the nodes are %q, want %q and %q", nodes, stays.node, dies.node)
	}
}

func TestEndOrphans_TwoNodes_EachTurnEndedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		dies, _ := join(t, url)
		first, firstWakeUps := join(t, url)
		second, _ := join(t, url)
		const turns = 100
		var keys []conversation.TurnKey
		for range turns {
			key := liveTurn(t, dies, newOwner())
			journalText(t, dies, key, 0, "what was written")
			keys = append(keys, key)
		}
		_, err := first.Follow(t.Context(), keys[0].Owner, keys[0].SessionID)
		must(t, err)
		ownTurn := liveTurn(t, first, newOwner())
		die(t, dies)
		var ended [2]int
		var ending sync.WaitGroup
		for i, s := range []*Store{first, second} {
			ending.Go(func() {
				await(t, "the dead node is removed", func() bool {
					n, err := s.EndOrphans(t.Context(), lengthOf)
					must(t, err)
					ended[i] += n
					return len(members(t, dies)) == 0 && !slices.Contains(nodesOf(t, s), dies.node)
				})
			})
		}
		ending.Wait()
		if ended[0]+ended[1] != turns {
			t.Errorf("of %d turns, the two nodes ended %v", turns, ended)
		}
		firstWakeUps.await(t, keys[0].SessionID)
		for _, key := range keys {
			wantInterrupted(t, first, key, "what was written")
		}
		if g := poll(t, first, followedReply(ownTurn, 0))[0]; g.Session.LiveReply != ownTurn.ReplyID {
			t.Errorf("the turn of a living node: %+v", g)
		}
		suspend(dies, false)
		await(t, "the suspended node is in the list of nodes again", func() bool {
			return slices.Contains(nodesOf(t, first), dies.node)
		})
	})
}

func TestEndOrphans_UnlistedNode_TurnEndedAfterPoll(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	looks, _ := join(t, url)
	nobody := open(t, url) // never sends a heartbeat, as if it died before the first one
	key := liveTurn(t, nobody, newOwner())
	must(t, nobody.db.Del(t.Context(), liveKey(nobody.node)).Err())
	ended := 0
	await(t, "the turn is ended", func() bool {
		n, err := looks.EndOrphans(t.Context(), lengthOf)
		must(t, err)
		ended += n
		return poll(t, looks, followedReply(key, 0))[0].Session.LiveReply == ""
	})
	wantInterrupted(t, looks, key, "")
	if ended != 1 || len(looks.membership.suspects) != 0 {
		t.Errorf("%d turns were ended, want 1; the suspects are %v, want none", ended, looks.membership.suspects)
	}
}

// mayEndOrphans reports whether a node may end turns of dead nodes now.
func mayEndOrphans(s *Store) bool {
	n := &s.membership
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sureLocked(time.Now())
}

func TestEndOrphans_AfterOutage_LivingNodesTurnsGoOn(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	a, _ := join(t, server.URL)
	b, _ := join(t, server.URL)
	keys := []conversation.TurnKey{liveTurn(t, a, newOwner()), liveTurn(t, b, newOwner())}
	await(t, "both nodes may end others' turns", func() bool { return mayEndOrphans(a) && mayEndOrphans(b) })
	server.Stop()
	<-time.After(deadAfter + heartbeatInterval) // afterwards, each node sees the other as dead
	if mayEndOrphans(a) || mayEndOrphans(b) {
		t.Error("a node without a connection may end others' turns")
	}
	server.Cont()
	await(t, "both nodes may end others' turns again", func() bool {
		for _, s := range []*Store{a, b} {
			if n, _ := s.EndOrphans(t.Context(), lengthOf); n != 0 {
				t.Fatalf("%d turns of living nodes were ended", n)
			}
		}
		return mayEndOrphans(a) && mayEndOrphans(b)
	})
	for _, key := range keys {
		if g := poll(t, a, followedReply(key, 0))[0]; g.Session.LiveReply != key.ReplyID {
			t.Errorf("after the outage, the turn of a living node: %+v", g)
		}
	}
}

func TestInbox_ConnectionLost_NotifiesOfAllSessions(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	writer, writerWakeUps := join(t, server.URL)
	viewer, viewerWakeUps := join(t, server.URL)
	key := liveTurn(t, writer, newOwner())
	_, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
	must(t, err)
	writerWakeUps.await(t, key.SessionID)
	for range 3 {
		viewerWakeUps.take()
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
		journalText(t, writer, key, 0, "written meanwhile")
		viewerWakeUps.await(t, "")
		if g := poll(t, viewer, followedReply(key, 0))[0]; string(g.Text) != "written meanwhile" {
			t.Fatalf("the update is %+v", g)
		}
		journalText(t, writer, key, 0, "written meanwhile")
		viewerWakeUps.await(t, key.SessionID)
	}
}

func TestInbox_SilentConnection_Replaced(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr)
	_, p := join(t, proxy.URL)
	direct := open(t, server.URL)
	connection := func() string {
		list, err := direct.db.Do(t.Context(), "client", "list", "type", "pubsub").Text()
		must(t, err)
		return regexp.MustCompile(`id=\d+`).FindString(list)
	}
	first := connection()
	proxy.Delay(int(time.Hour.Milliseconds()))
	await(t, "the silent connection is closed", func() bool { return connection() != first })
	proxy.Heal()
	p.await(t, "")
}
