package redis

import (
	"slices"
	"sync"
	"testing"
	"time"

	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/stream"
)

// pokes is what a node was poked with.
type pokes struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (p *pokes) poked(sessionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, sessionID)
}

// take returns what came since the last time.
func (p *pokes) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// await waits until the node is poked with that.
func (p *pokes) await(t *testing.T, sessionID string) {
	t.Helper()
	await(t, "it is poked with "+sessionID, func() bool { return slices.Contains(p.take(), sessionID) })
}

// await asks again and again until what is asked is true.
func await(t *testing.T, what string, ready func() bool) {
	t.Helper()
	tick, late := time.NewTicker(5*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it is waited for in vain that %s", what)
		}
	}
}

// join returns a store that is a node. It dies in half the usual time.
func join(t *testing.T, url string) (*Store, *pokes) { return joinAt(t, url, 2) }

// joinAt is join for a node that dies so many times faster than is usual.
func joinAt(t *testing.T, url string, haste time.Duration) (*Store, *pokes) {
	t.Helper()
	s, p := open(t, url), new(pokes)
	s.membership.every, s.membership.deadAfter = heartbeatEvery/haste, deadAfter/haste
	must(t, s.Join(t.Context(), p.poked))
	return s, p
}

// mute has a node's heartbeat stop, as if its process slept, or go on.
func mute(s *Store, is bool) {
	s.membership.mu.Lock()
	defer s.membership.mu.Unlock()
	s.membership.mute = is
}

func lengthOf(text string) int { return len(text) }

func segment(key conversation.TurnKey, offset int, text string) stream.Segment[conversation.TurnKey] {
	return stream.Segment[conversation.TurnKey]{Key: key, Offset: offset, Text: []byte(text)}
}

func journalText(t *testing.T, s *Store, key conversation.TurnKey, offset int, text string) {
	t.Helper()
	must(t, s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{segment(key, offset, text)}))
}

func glance(t *testing.T, s *Store, watched ...conversation.Followed) []conversation.Update {
	t.Helper()
	glances, err := s.Poll(t.Context(), watched)
	must(t, err)
	if len(glances) != len(watched) {
		t.Fatalf("%d glances at %d sessions", len(glances), len(watched))
	}
	return glances
}

func watchedReply(key conversation.TurnKey, offset int) conversation.Followed {
	return conversation.Followed{Owner: key.Owner, SessionID: key.SessionID, Reply: key.ReplyID, Offset: offset}
}

// onBoth runs a test on one server and on a Cluster.
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

func TestANodeThatWatchesIsPokedAboutASummaryAndLearnsItsFigures(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		writer, writerPokes := join(t, url)
		viewer, viewerPokes := join(t, url)
		key := liveTurn(t, writer, newOwner())
		end(t, writer, key)
		_, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
		must(t, err)
		watched := conversation.Followed{Owner: key.Owner, SessionID: key.SessionID}
		same(t, "the summary before", glance(t, viewer, watched)[0].Summary, conversation.Summary{})
		viewerPokes.take()
		writerPokes.take()
		summary := conversation.Summary{Text: "so far", Tokens: 7, Last: key.ReplyID, Count: 2, Replaced: 99}
		must(t, writer.SaveSummary(t.Context(), key.Owner, key.SessionID, "", summary, conversation.Usage{}))
		viewerPokes.await(t, key.SessionID)
		summary.Text = ""
		same(t, "the summary", glance(t, viewer, watched)[0].Summary, summary)
	})
}

func TestANodeThatWatchesIsPokedAboutTextAndReadsIt(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		writer, writerPokes := join(t, url)
		viewer, viewerPokes := join(t, url)
		key := liveTurn(t, writer, newOwner())
		session, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
		must(t, err)
		if session.LiveReply != key.ReplyID || session.ID != key.SessionID || session.Fence != key.Fence {
			t.Errorf("Watch returned %+v", session)
		}
		writerPokes.await(t, key.SessionID) // from here on it knows
		for offset, text := 0, ""; offset < 100; offset = len(text) {
			viewerPokes.take()
			journalText(t, writer, key, offset, "ä text ")
			text += "ä text "
			viewerPokes.await(t, key.SessionID)
			if g := glance(t, viewer, watchedReply(key, offset))[0]; string(g.Text) != "ä text " || g.Stop != "" || g.Gone {
				t.Fatalf("after the poke at %d the glance is %+v", offset, g)
			}
		}
		other := watchedReply(key, 0)
		other.Reply = "msg_another"
		gone := watchedReply(key, 0)
		gone.SessionID = "session_0123456789abcdef"
		foreign := watchedReply(key, 0)
		foreign.Owner = newOwner()
		glances := glance(t, viewer, gone, other, foreign)
		if !glances[0].Gone || glances[1].Gone || glances[1].Text != nil || glances[1].Session.LiveReply != key.ReplyID || !glances[2].Gone {
			t.Errorf("glances at a session that is gone, at another reply, by another owner: %+v", glances)
		}
		_, err = viewer.Follow(t.Context(), gone.Owner, gone.SessionID)
		wantError(t, "Follow", err, conversation.ErrSessionNotFound)
	})
}

func TestAWriterThatMissedAWatcherLearnsOfItByAGlance(t *testing.T) {
	t.Parallel()
	url := shared.Start(t)
	writer, _ := join(t, url)
	viewer, viewerPokes := join(t, url)
	key := liveTurn(t, writer, newOwner())
	glance(t, viewer, watchedReply(key, 0)) // which watches it too, and tells nobody
	journalText(t, writer, key, 0, "unheard")
	glance(t, writer, watchedReply(key, 0))
	journalText(t, writer, key, 7, "heard")
	viewerPokes.await(t, key.SessionID)
	if pokes := viewerPokes.take(); len(pokes) > 0 {
		t.Errorf("it was poked twice, also with %q", pokes)
	}
	writer.viewers.sweep(time.Now().Add(conversation.FollowLease + time.Second))
	viewer.viewers.sweep(time.Now().Add(conversation.FollowLease + time.Second))
	if len(writer.viewers.of) != 0 || len(viewer.viewers.watched) != 0 {
		t.Error("what is over is not forgotten")
	}
}

// nodesOf returns who is a node.
func nodesOf(t *testing.T, s *Store) []string {
	t.Helper()
	nodes, err := s.db.ZRange(t.Context(), nodesKey, 0, -1).Result()
	must(t, err)
	return nodes
}

func TestANodeThatLeavesIsNoNodeAnyMore(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	stays, _ := join(t, url)
	leaves, _ := join(t, url)
	dies, _ := join(t, url)
	liveTurn(t, dies, newOwner())
	if err := stays.Join(t.Context(), func(string) {}); err == nil {
		t.Error("one process joined twice")
	}
	buried, err := leaves.run(t.Context(), buryScript, "", []string{nodesKey}, stays.node, deadAfter.Milliseconds())
	must(t, err)
	same(t, "whether a node that lives was forgotten", buried, any(int64(0)))
	must(t, leaves.Close())
	must(t, dies.Close()) // with a turn that others have to end
	nodes := nodesOf(t, stays)
	if slices.Sort(nodes); !slices.Equal(nodes, slices.Sorted(slices.Values([]string{stays.node, dies.node}))) {
		t.Errorf("the nodes are %q", nodes)
	}
}

func TestTheTurnsOfADeadNodeAreEndedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		dies, _ := join(t, url)
		first, firstPokes := join(t, url)
		second, _ := join(t, url)
		const turns = 100
		var keys []conversation.TurnKey
		for range turns {
			key := liveTurn(t, dies, newOwner())
			journalText(t, dies, key, 0, "what was said")
			keys = append(keys, key)
		}
		_, err := first.Follow(t.Context(), keys[0].Owner, keys[0].SessionID)
		must(t, err)
		ownTurn := liveTurn(t, first, newOwner())
		mute(dies, true)
		var ended [2]int
		var reaping sync.WaitGroup
		for i, s := range []*Store{first, second} {
			reaping.Go(func() {
				await(t, "the dead node is forgotten", func() bool {
					n, err := s.EndOrphans(t.Context(), lengthOf)
					must(t, err)
					ended[i] += n
					return len(members(t, dies)) == 0 && !slices.Contains(nodesOf(t, s), dies.node)
				})
			})
		}
		reaping.Wait()
		if ended[0]+ended[1] != turns {
			t.Errorf("%d turns were ended, by one and the other %v", turns, ended)
		}
		firstPokes.await(t, keys[0].SessionID)
		for _, key := range keys {
			wantInterrupted(t, first, key, "what was said")
		}
		if g := glance(t, first, watchedReply(ownTurn, 0))[0]; g.Session.LiveReply != ownTurn.ReplyID {
			t.Errorf("the turn of a node that lives: %+v", g)
		}
		mute(dies, false)
		await(t, "the node that slept is a node again", func() bool {
			return slices.Contains(nodesOf(t, first), dies.node)
		})
	})
}

func TestATurnOfNobodyIsFoundByWhoLooks(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	looks, _ := join(t, url)
	nobody := open(t, url) // its process died before the turn was among its own
	key := liveTurn(t, nobody, newOwner())
	must(t, nobody.db.Del(t.Context(), liveKey(nobody.node)).Err())
	ended := 0
	await(t, "the turn is ended", func() bool {
		n, err := looks.EndOrphans(t.Context(), lengthOf)
		must(t, err)
		ended += n
		return glance(t, looks, watchedReply(key, 0))[0].Session.LiveReply == ""
	})
	wantInterrupted(t, looks, key, "")
	if ended != 1 || len(looks.membership.suspects) != 0 {
		t.Errorf("%d turns were ended; the suspects are %v", ended, looks.membership.suspects)
	}
}

// mayReap reports whether a node would end the turns of others now.
func mayReap(s *Store) bool {
	n := &s.membership
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sure(time.Now())
}

func TestAnOutageMakesNobodyDead(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	a, _ := joinAt(t, server.URL, 1)
	b, _ := joinAt(t, server.URL, 1)
	keys := []conversation.TurnKey{liveTurn(t, a, newOwner()), liveTurn(t, b, newOwner())}
	await(t, "both may end others' turns", func() bool { return mayReap(a) && mayReap(b) })
	server.Stop()
	<-time.After(deadAfter + heartbeatEvery) // an outage is a length of time
	server.Cont()
	if mayReap(a) || mayReap(b) {
		t.Error("a node that is out of touch may end others' turns")
	}
	await(t, "both may end others' turns again", func() bool {
		for _, s := range []*Store{a, b} {
			if n, _ := s.EndOrphans(t.Context(), lengthOf); n != 0 {
				t.Fatalf("%d turns were ended", n)
			}
		}
		return mayReap(a) && mayReap(b)
	})
	for _, key := range keys {
		if g := glance(t, a, watchedReply(key, 0))[0]; g.Session.LiveReply != key.ReplyID {
			t.Errorf("after the outage: %+v", g)
		}
	}
}

func TestALostInboxIsMadeAnewAndSaysSo(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	writer, writerPokes := join(t, server.URL)
	viewer, viewerPokes := join(t, server.URL)
	key := liveTurn(t, writer, newOwner())
	_, err := viewer.Follow(t.Context(), key.Owner, key.SessionID)
	must(t, err)
	writerPokes.await(t, key.SessionID)
	for range 3 {
		viewerPokes.take()
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
		journalText(t, writer, key, 0, "said while nobody heard")
		viewerPokes.await(t, "")
		if g := glance(t, viewer, watchedReply(key, 0))[0]; string(g.Text) != "said while nobody heard" {
			t.Fatalf("the glance is %+v", g)
		}
		journalText(t, writer, key, 0, "said while nobody heard")
		viewerPokes.await(t, key.SessionID)
	}
}

func TestAnInboxThatWasCutWithoutAWordIsMadeAnew(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	proxy := redistest.NewProxy(t, server.Addr)
	_, p := join(t, proxy.URL)
	proxy.Delay(60_000)
	<-time.After(inboxSilence + 2*heartbeatEvery)
	proxy.Heal()
	p.await(t, "")
}
