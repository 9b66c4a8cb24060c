package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/redis/redistest"
	"parley/stream"
)

// liveTurn begins a turn in a new session.
func liveTurn(t testing.TB, s *Store, owner conversation.Owner) conversation.TurnKey {
	t.Helper()
	created, err := s.CreateSession(t.Context(), owner, conversation.NewSession{
		UserID: conversation.UserPrefix + conversation.RandomText(16), Context: conversation.DefaultContextConfig,
	})
	if err != nil {
		t.Fatal(err)
	}
	return nextTurn(t, s, owner, created.Session.ID)
}

// nextTurn begins a turn in a session that is free.
func nextTurn(t testing.TB, s *Store, owner conversation.Owner, sessionID string) conversation.TurnKey {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), owner, aTurn(sessionID, "a question"))
	if err != nil || begun.Queued != nil {
		t.Fatalf("BeginTurn: %+v, %v", begun, err)
	}
	return begun.Key
}

// wantInterrupted checks that EndOrphans has ended a turn with text, and with estimated usage that counts each byte as a token.
func wantInterrupted(t *testing.T, s *Store, key conversation.TurnKey, text string) {
	t.Helper()
	m, err := s.Message(t.Context(), key.Owner, key.SessionID, key.ReplyID)
	must(t, err)
	if m.Status != stream.Interrupted || m.Content != text || m.Tokens != len(text) || m.Usage == nil || !m.Usage.Estimated ||
		m.Usage.Prompt == 0 || m.Usage.Completion != len(text) || m.Usage.Total != m.Usage.Prompt+len(text) {
		t.Errorf("the reply is %+v with usage %+v, want it interrupted with the text %q", m, m.Usage, text)
	}
	session, err := s.Session(t.Context(), key.Owner, key.SessionID)
	must(t, err)
	if session.LiveReply != "" || session.TokenUsage.Total != m.Usage.Total {
		t.Errorf("the session is %+v, want it free and with the usage of the reply", session)
	}
}

// die makes a node dead at once: it stops the node's heartbeat, and sets the time of the last heartbeat to 1970.
func die(t *testing.T, s *Store) {
	t.Helper()
	s.membership.mu.Lock()
	s.membership.asleep = true
	s.membership.mu.Unlock()
	err := s.db.ZAdd(t.Context(), nodesKey, redis.Z{Score: 1, Member: s.node}).Err()
	must(t, err)
}

// endTurns calls EndOrphans on a node until it has ended the given number of turns. The next EndOrphans must end no turn.
func endTurns(t *testing.T, s *Store, turns int) {
	t.Helper()
	ended := 0
	await(t, "turns are ended", func() bool {
		n, err := s.EndOrphans(t.Context(), lengthOf)
		must(t, err)
		ended += n
		return ended >= turns
	})
	if n, err := s.EndOrphans(t.Context(), lengthOf); ended != turns || n != 0 || err != nil {
		t.Errorf("%d turns were ended, want %d; the next EndOrphans ended %d, error %v", ended, turns, n, err)
	}
}

func TestEndTurn_NodeWasSuspended_Fenced(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	sleeps, sleeperWakeUps := join(t, url)
	lives, _ := join(t, url)
	key := liveTurn(t, sleeps, newOwner())
	journalText(t, sleeps, key, 0, "before")
	die(t, sleeps)
	endTurns(t, lives, 1)
	sleeperWakeUps.await(t, key.SessionID)
	journalText(t, sleeps, key, 6, " and after")
	decided, err := sleeps.EndTurn(t.Context(), key, conversation.Message{
		Content: "before and after", Tokens: 3, Status: stream.Completed, Usage: &conversation.Usage{Prompt: 1, Completion: 1, Total: 2},
	}, conversation.Timing{})
	wantError(t, "EndTurn", err, conversation.ErrFenced)
	if decided.Status != stream.Interrupted || decided.Content != "before" {
		t.Errorf("the stored reply is %+v", decided)
	}
	wantInterrupted(t, lives, key, "before")
	suspend(sleeps, false)
	sleeperWakeUps.await(t, "") // the next heartbeat finds that the node was removed from the list
	next := nextTurn(t, sleeps, key.Owner, key.SessionID)
	if n, err := lives.EndOrphans(t.Context(), lengthOf); n != 0 || err != nil {
		t.Errorf("%d turns of the resumed node were ended, error %v; want 0", n, err)
	}
	if g := poll(t, lives, followedReply(next, 0))[0]; g.Session.LiveReply != next.ReplyID || len(g.Text) != 0 {
		t.Errorf("the next turn: %+v", g)
	}
}

func TestEndOrphans_WaiterOfLivingNode_BeginsNext(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	dies, _ := join(t, url)
	waits, _ := join(t, url)
	third, _ := join(t, url)
	key := liveTurn(t, dies, newOwner())
	if begun, err := dies.BeginTurn(t.Context(), key.Owner, aTurn(key.SessionID, "first in the queue, on the node that dies")); err != nil || begun.Queued == nil {
		t.Fatalf("BeginTurn: %+v, %v; want a place in the queue", begun, err)
	}
	turn := aTurn(key.SessionID, "waiting")
	var queued *conversation.Queued
	try := func() bool {
		begun, err := waits.BeginTurn(t.Context(), key.Owner, turn)
		must(t, err)
		queued = begun.Queued
		return queued == nil
	}
	if try() || queued.Live != key.ReplyID {
		t.Fatalf("the place in the queue is %+v, want one behind the reply %s", queued, key.ReplyID)
	}
	die(t, dies)
	endTurns(t, third, 1)
	if !try() {
		t.Error("the waiter of the living node could not begin its turn")
	}
	wantUsage(t, waits, key.Owner, 1, 0)
}

func TestEndOrphans_UnlistedNode_TurnEndedAfterBeginTurn(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	waits, _ := join(t, url)
	nobody := open(t, url) // never sends a heartbeat, as if it died before the first one
	key := liveTurn(t, nobody, newOwner())
	must(t, nobody.db.Del(t.Context(), liveKey(nobody.node)).Err())
	turn := aTurn(key.SessionID, "waiting")
	await(t, "the turn begins", func() bool {
		_, err := waits.EndOrphans(t.Context(), lengthOf)
		must(t, err)
		begun, err := waits.BeginTurn(t.Context(), key.Owner, turn)
		must(t, err)
		return begun.Queued == nil
	})
}

// wantUsage checks two counts in an owner's usage: interrupted replies, and completion tokens.
func wantUsage(t *testing.T, s *Store, owner conversation.Owner, interrupted, completion int64) {
	t.Helper()
	now := usage.HourOf(time.Now().UnixMilli())
	used, err := s.Usage(t.Context(), owner, now-1, now+2)
	must(t, err)
	var all usage.Bucket
	for _, h := range used.Hours {
		all.Add(&h.Bucket)
	}
	if all.Interrupted != interrupted || all.CompletionTokens != completion || interrupted > 0 && all.PromptTokens == 0 {
		t.Errorf("usage: %+v, want %d interrupted replies and %d completion tokens", all, interrupted, completion)
	}
}

func TestEndOrphans_SessionGone_UsageSettled(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		dies, _ := join(t, url)
		lives, _ := join(t, url)
		deleted, expired, ended := liveTurn(t, dies, newOwner()), liveTurn(t, dies, newOwner()), liveTurn(t, dies, newOwner())
		for _, key := range []conversation.TurnKey{deleted, expired, ended} {
			journalText(t, dies, key, 0, "text")
		}
		_, err := lives.DeleteSession(t.Context(), deleted.Owner, deleted.SessionID)
		must(t, err)
		tag := tagOfOwner(expired.Owner)
		gone := []string{sessionKey(tag, expired.SessionID), tag + ":m:" + expired.SessionID, journalKey(tag, expired.SessionID, expired.Fence)}
		must(t, dies.db.Del(t.Context(), gone...).Err()) // as if the session had expired
		_, err = dies.DeleteSession(t.Context(), ended.Owner, ended.SessionID)
		must(t, err)
		_, err = dies.EndTurn(t.Context(), ended, conversation.Message{Status: stream.Cancelled}, conversation.Timing{})
		wantError(t, "EndTurn of a session that is gone", err, conversation.ErrSessionNotFound)
		die(t, dies)
		endTurns(t, lives, 2)
		wantUsage(t, lives, deleted.Owner, 1, 0)
		wantUsage(t, lives, expired.Owner, 1, 0)
		wantUsage(t, lives, ended.Owner, 0, 0)
		wantError(t, "EndTurn of a turn that EndOrphans has ended", endAgain(t, dies, deleted), conversation.ErrSessionNotFound)
		wantUsage(t, lives, deleted.Owner, 1, 0)
	})
}

// endAgain calls EndTurn for a turn that has ended before. It returns the error.
func endAgain(t *testing.T, s *Store, key conversation.TurnKey) error {
	_, err := s.EndTurn(t.Context(), key, conversation.Message{Status: stream.Completed, Tokens: 9, Usage: &conversation.Usage{Completion: 9, Total: 9}}, conversation.Timing{})
	return err
}

func TestMembership_ClockSetAhead_NoNodeDeadFor3s(t *testing.T) {
	n := membership{interval: heartbeatInterval, deadAfter: deadAfter}
	heartbeat := func(clock time.Duration, dead ...any) []any {
		return []any{int64(1), clock.Milliseconds(), append([]any{"self"}, dead...), dead}
	}
	start := time.Now()
	n.stop = func() {}
	for second := range 20 {
		clock := time.Duration(second) * time.Second
		var dead []any
		if second >= 10 {
			clock += time.Minute
			dead = []any{"other"} // its last heartbeat is now a minute old
		}
		now := start.Add(time.Duration(second) * time.Second)
		if _, err := n.learn(heartbeat(clock, dead...), now); err != nil {
			t.Fatal(err)
		}
		all, _ := n.orphaned(now)
		if want := second >= 13; (len(all) > 0) != want {
			t.Errorf("after %d s the dead nodes are %q, want some: %v", second, all, want)
		}
	}
}
