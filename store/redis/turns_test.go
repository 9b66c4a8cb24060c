package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

const aUser = "user_0123456789ABCDEF"

func newOwner() conversation.Owner {
	return conversation.Owner{Account: newAccount(), Mode: conversation.Live}
}

func newSession(t *testing.T, s *Store, owner conversation.Owner) conversation.Session {
	t.Helper()
	made, err := s.CreateSession(t.Context(), owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
	must(t, err)
	return made.Session
}

func aTurn(sessionID, content string) conversation.NewTurn {
	return conversation.NewTurn{
		SessionID: sessionID, Role: conversation.User, Content: content, Tokens: 10, OnBusy: conversation.Enqueue,
		Waiter: conversation.RandomText(16),
	}
}

var anAnswer = conversation.Message{
	Content: "an answer", Tokens: 5, Status: stream.Completed, FinishReason: "stop",
	Usage: &conversation.Usage{Prompt: 17, Completion: 5, Total: 22},
}

// begin calls BeginTurn, which must begin the turn at once.
func begin(t *testing.T, s *Store, owner conversation.Owner, turn conversation.NewTurn) conversation.TurnStart {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), owner, turn)
	must(t, err)
	if begun.Queued != nil || begun.Replayed != nil {
		t.Fatalf("the turn of %q has not begun: %+v", turn.Content, begun)
	}
	return begun
}

// wait calls BeginTurn, which must put the turn's waiter in the session's queue.
func wait(t *testing.T, s *Store, owner conversation.Owner, turn conversation.NewTurn) *conversation.Queued {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), owner, turn)
	must(t, err)
	if begun.Queued == nil {
		t.Fatalf("the turn of %q is not queued: %+v", turn.Content, begun)
	}
	return begun.Queued
}

// end ends a turn with the reply anAnswer.
func end(t *testing.T, s *Store, key conversation.TurnKey) conversation.Message {
	t.Helper()
	ended, err := s.EndTurn(t.Context(), key, anAnswer, conversation.Timing{})
	must(t, err)
	return ended
}

// same checks that got equals want. what is the name of the value.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// members returns the members of a node's set of live turns.
func members(t *testing.T, s *Store) []string {
	t.Helper()
	all, err := s.db.SMembers(t.Context(), liveKey(s.node)).Result()
	must(t, err)
	return all
}

// used returns four figures of an owner's usage: created sessions, messages, tokens, and existing sessions.
func used(t *testing.T, s *Store, owner conversation.Owner) (sessions, messages, tokens int64, active int) {
	t.Helper()
	all, err := s.Usage(t.Context(), owner, 0, 1<<40)
	must(t, err)
	for _, h := range all.Hours {
		sessions += h.Bucket.Sessions
		messages += h.Bucket.UserMessages + h.Bucket.AssistantMessages
		tokens += h.Bucket.PromptTokens + h.Bucket.CompletionTokens
	}
	return sessions, messages, tokens, all.Active
}

func TestBeginTurn_SameWaiter_ReturnsSameTurn(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	end(t, s, begin(t, s, owner, aTurn(session.ID, "before")).Key)
	turn := aTurn(session.ID, "hello")
	begun := begin(t, s, owner, turn)
	same(t, "the same BeginTurn again", begin(t, s, owner, turn), begun)
	resumed, err := s.ResumeTurn(t.Context(), owner, turn)
	must(t, err)
	same(t, "ResumeTurn", resumed, begun)
	same(t, "the node's live turns", members(t, s), []string{liveMember(tagOfOwner(owner), session.ID, turn.Waiter)})
	if _, messages, _, _ := used(t, s, owner); messages != 4 {
		t.Errorf("%d messages are counted, want 4", messages)
	}
	ended := end(t, s, begun.Key)
	again, err := s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
	wantError(t, "EndTurn again", err, conversation.ErrFenced)
	same(t, "the reply that EndTurn returns with ErrFenced", again, ended)
}

func TestBeginTurn_LostReply_BegunOnce(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session, w := newSession(t, s, owner), tap(s)
	w.replyLost.Store(beginTurnScript)
	first := begin(t, s, owner, aTurn(session.ID, "hello"))
	same(t, "the fencing token", first.Key.Fence, 1)
	w.replyLost.Store(endTurnScript)
	ended, err := s.EndTurn(t.Context(), first.Key, anAnswer, conversation.Timing{})
	wantError(t, "EndTurn", err, conversation.ErrFenced) // the first run of the script has ended the turn
	same(t, "the reply that EndTurn returns with ErrFenced", ended.Content, anAnswer.Content)

	turn := aTurn(session.ID, "counted")
	ctx := auth.WithAdmission(t.Context(), &auth.Admission{
		Principal: auth.Principal{Account: owner.Account, Mode: auth.Live}, Limits: limit.TierLimits{RequestsPerMinute: 9, TokensPerMinute: 9000},
	})
	w.replyLost.Store(beginTurnScript)
	_, err = s.BeginTurn(ctx, owner, turn)
	wantError(t, "BeginTurn of a request that may have been counted", err, conversation.ErrUnavailable)
	second, err := s.ResumeTurn(t.Context(), owner, turn)
	must(t, err)
	same(t, "the message of the resumed turn", second.Message.Content, "counted")
	end(t, s, second.Key)
	same(t, "the number of messages", second.Session.MessageCount, 4)
}

func TestQueue_WakeUp_WakesOnlyNamedWaiter(t *testing.T) {
	s, other, owner := newStore(t), newStore(t), newOwner()
	session := newSession(t, s, owner)
	running := begin(t, s, owner, aTurn(session.ID, "running"))
	here, there, last := aTurn(session.ID, "here"), aTurn(session.ID, "there"), aTurn(session.ID, "last")
	inbox := inboxOf(t, other)
	queued, queuedThere, queuedLast := wait(t, s, owner, here), wait(t, other, owner, there), wait(t, s, owner, last)
	end(t, s, running.Key)
	same(t, "the first and the last waiter were woken", []bool{closed(queued), closed(queuedLast)}, []bool{true, false})
	end(t, s, begin(t, s, owner, here).Key)
	word := nextMessage(t, inbox)
	same(t, "the word in the other node's inbox", word, session.ID+"!"+there.Waiter)
	other.waiters.wake(session.ID)
	same(t, "the session's id has woken the waiter", closed(queuedThere), false)
	other.waiters.wake(word)
	same(t, "the waiter's word has woken the waiter", closed(queuedThere), true)
}

// inboxOf returns a subscription to a node's inbox.
func inboxOf(t *testing.T, s *Store) *redis.PubSub {
	t.Helper()
	inbox := s.db.Subscribe(t.Context(), inboxChannel(s.node))
	t.Cleanup(func() { _ = inbox.Close() })
	_, err := inbox.Receive(t.Context())
	must(t, err)
	return inbox
}

// nextMessage waits for the next message of an inbox, and returns it.
func nextMessage(t *testing.T, inbox *redis.PubSub) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	message, err := inbox.ReceiveMessage(ctx)
	must(t, err)
	return message.Payload
}

// closed reports whether the waiter of a place in a queue was woken.
func closed(q *conversation.Queued) bool {
	select {
	case <-q.Granted:
		return true
	default:
		return false
	}
}

func TestResumeTurn_TurnNotBegun_NeverBegins(t *testing.T) {
	s, other, owner := newStore(t), newStore(t), newOwner()
	session := newSession(t, s, owner)
	running := begin(t, s, owner, aTurn(session.ID, "running"))
	lost := aTurn(session.ID, "lost")
	wait(t, s, owner, lost)
	_, err := s.ResumeTurn(t.Context(), owner, lost)
	wantError(t, "ResumeTurn of a queued turn", err, conversation.ErrMessageNotFound)
	end(t, s, running.Key)
	next := begin(t, s, owner, aTurn(session.ID, "next")) // succeeds: the session is not granted to the waiter of lost
	end(t, s, next.Key)
	_, err = s.BeginTurn(t.Context(), owner, lost) // as if the first BeginTurn of this waiter arrived late
	wantError(t, "BeginTurn with a void waiter", err, conversation.ErrUnavailable)
	for what, turn := range map[string]conversation.NewTurn{
		"an unknown session": aTurn("session_0000000000000000", "?"), "an unknown turn": aTurn(session.ID, "?"),
	} {
		_, err = s.ResumeTurn(t.Context(), owner, turn)
		wantError(t, "ResumeTurn of "+what, err, conversation.ErrMessageNotFound)
	}
	turn := aTurn(session.ID, "hello")
	begin(t, s, owner, turn)
	_, err = other.ResumeTurn(t.Context(), owner, turn)
	wantError(t, "ResumeTurn by another node", err, conversation.ErrMessageNotFound)
}

func TestLiveTurns_AllEnded_SetEmpty(t *testing.T) {
	s, owner := newStore(t), newOwner()
	tag, session := tagOfOwner(owner), newSession(t, s, owner)
	first, second := aTurn(session.ID, "first"), aTurn(session.ID, "second")
	begun := begin(t, s, owner, first)
	wait(t, s, owner, second)
	must(t, s.LeaveQueue(t.Context(), owner, session.ID, first.Waiter)) // changes nothing: the turn of this waiter is live
	for range 3 {
		_, err := s.BeginTurn(t.Context(), owner, aTurn("session_0000000000000000", "?"))
		wantError(t, "BeginTurn", err, conversation.ErrSessionNotFound)
	}
	must(t, s.removeStale(t.Context()))
	same(t, "number of members with a live and a queued turn", len(members(t, s)), 2)
	end(t, s, begun.Key)
	begun = begin(t, s, owner, second) // also removes the member of the first turn
	same(t, "members during the second turn", members(t, s), []string{liveMember(tag, session.ID, second.Waiter)})
	_, err := s.DeleteSession(t.Context(), owner, session.ID)
	must(t, err)
	_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
	wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
	must(t, s.removeStale(t.Context()))
	same(t, "members after all turns", members(t, s), nil)
}

func TestStop_EachCause_WritingNodeNotified(t *testing.T) {
	writer, other, owner := newStore(t), newStore(t), newOwner()
	inbox := inboxOf(t, writer)
	for _, test := range []struct {
		name string
		stop conversation.Stop
		run  func(begun conversation.TurnStart) error
	}{
		{"StopReply", conversation.StopCancelled, func(begun conversation.TurnStart) error {
			m, err := other.StopReply(t.Context(), owner, begun.Session.ID, begun.Reply.ID)
			same(t, "the message", m, begun.Reply)
			return err
		}},
		{"an interrupting send", conversation.StopCancelled, func(begun conversation.TurnStart) error {
			turn := aTurn(begun.Session.ID, "urgent")
			turn.OnBusy = conversation.Interrupt
			_, err := other.BeginTurn(t.Context(), owner, turn)
			return err
		}},
		{"ClearMessages", conversation.StopCleared, func(begun conversation.TurnStart) error {
			_, err := other.ClearMessages(t.Context(), owner, begun.Session.ID, "clears")
			return err
		}},
		{"StopReply of another message", "", func(begun conversation.TurnStart) error {
			_, err := other.StopReply(t.Context(), owner, begun.Session.ID, begun.Message.ID)
			return err
		}},
	} {
		session := newSession(t, other, owner)
		begun := begin(t, writer, owner, aTurn(session.ID, "hello"))
		must(t, test.run(begun))
		noted, _ := writer.db.HGet(t.Context(), sessionKey(tagOfOwner(owner), session.ID), "stop").Result()
		same(t, test.name+": the reason to stop", conversation.Stop(noted), test.stop)
		if test.stop != "" {
			same(t, test.name+": the wake-up", nextMessage(t, inbox), session.ID)
		}
		end(t, writer, begun.Key)
		same(t, test.name+": a reason to stop after the turn", writer.db.HExists(t.Context(), sessionKey(tagOfOwner(owner), session.ID), "stop").Val(), false)
	}
}

// age makes a session's queue look older: it moves back the times at which each waiter last tried, and the time of the grant.
func age(t *testing.T, s *Store, owner conversation.Owner, sessionID string, milliseconds int) {
	t.Helper()
	must(t, s.db.Eval(t.Context(), `
		local packed, at = redis.call('HGET', KEYS[1], 'queue'), redis.call('HGET', KEYS[1], 'grantedAt')
		if packed then
			local queue = cmsgpack.unpack(packed)
			for _, w in ipairs(queue) do w[5] = w[5] - ARGV[1] end
			redis.call('HSET', KEYS[1], 'queue', cmsgpack.pack(queue))
		end
		if at then redis.call('HSET', KEYS[1], 'grantedAt', string.format('%d', at - ARGV[1])) end
		return 1`, []string{sessionKey(tagOfOwner(owner), sessionID)}, milliseconds).Err())
}

func TestQueue_WaiterStopsTrying_Dropped(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	running := begin(t, s, owner, aTurn(session.ID, "running"))
	dead, alive, late := aTurn(session.ID, "dead"), aTurn(session.ID, "alive"), aTurn(session.ID, "late")
	wait(t, s, owner, dead)
	wait(t, s, owner, alive)
	age(t, s, owner, session.ID, 5500)
	wait(t, s, owner, alive) // both waiters have lost their places, but alive tries again
	end(t, s, running.Key)
	wait(t, s, owner, late) // must wait, because the session is granted to alive
	second := begin(t, s, owner, alive)
	dead.Waiter = conversation.RandomText(16)
	wait(t, s, owner, dead)
	end(t, s, second.Key)
	wait(t, s, owner, dead) // must wait, because the session is granted to late, which never tries again
	age(t, s, owner, session.ID, 1000)
	wait(t, s, owner, dead)
	age(t, s, owner, session.ID, 4500)
	begun := begin(t, s, owner, dead) // the grant of late has lapsed
	end(t, s, begun.Key)
	end(t, s, begin(t, s, owner, aTurn(session.ID, "anybody")).Key)
}

// expire makes a session look expired: it removes the session's hash and messages, and sets the session's expiry in the index to
// 1970.
func expire(t *testing.T, s *Store, owner conversation.Owner, sessionID string) {
	t.Helper()
	tag := tagOfOwner(owner)
	member := sessionID + ":" + aUser
	must(t, s.db.ZAddXX(t.Context(), expiryKey(tag), redis.Z{Score: 1, Member: member}).Err())
	must(t, s.db.Del(t.Context(), sessionKey(tag, sessionID), tag+":m:"+sessionID).Err())
}

func TestEndTurn_SessionExpired_UsageSettledOnce(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session, kept := newSession(t, s, owner), newSession(t, s, owner)
	begun := begin(t, s, owner, aTurn(session.ID, "hello"))
	expire(t, s, owner, session.ID)
	page, err := s.Sessions(t.Context(), owner, conversation.SessionQuery{Limit: 1})
	must(t, err)
	same(t, "the sessions", page, conversation.SessionPage{Sessions: []conversation.Session{kept}})
	for index, want := range map[string]int64{"i": 1, "x": 1, "u:" + aUser: 1} {
		n, err := s.db.ZCard(t.Context(), tagOfOwner(owner)+":"+index).Result()
		must(t, err)
		same(t, "number of members in index "+index, n, want)
	}
	for range 2 {
		_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
		wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
		sessions, messages, tokens, active := used(t, s, owner)
		same(t, "counted sessions, messages and tokens, and active sessions", []int64{sessions, messages, tokens, int64(active)}, []int64{2, 2, 22, 1})
	}
}

func TestDeleteSession_LeavesNoText(t *testing.T) {
	s, owner := newStore(t), newOwner()
	const secret = "nobody may read this"
	p := newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})
	config := conversation.DefaultContextConfig
	config.RetentionPolicy = conversation.Semantic
	created, err := s.CreateSession(t.Context(), owner, conversation.NewSession{UserID: aUser, Context: config})
	must(t, err)
	session := created.Session
	first := aTurn(session.ID, secret)
	first.Idempotency = &conversation.Idempotency{Key: "once"}
	ended := begin(t, s, owner, first)
	must(t, s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{{Key: ended.Key, Text: []byte(secret)}}))
	end(t, s, ended.Key)
	must(t, s.SetVectors(t.Context(), owner, session.ID, []conversation.ExchangeVector{{Reply: ended.Reply.ID, Vector: window.Vector(secret)}}))
	ctx := auth.WithAdmission(t.Context(), &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: 9, TokensPerMinute: 9000}})
	begun, err := s.BeginTurn(ctx, owner, aTurn(session.ID, secret))
	must(t, err)
	must(t, s.Journal(t.Context(), []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte(secret)}}))
	wait(t, s, owner, aTurn(session.ID, "waiting"))
	check := func(when string, holders int) {
		t.Helper()
		tag, holding := tagOfOwner(owner), []string(nil)
		keys, err := s.db.Keys(t.Context(), globOf(tag)+"*").Result()
		must(t, err)
		if len(keys) < 5 {
			t.Errorf("%s: the keys are only %q", when, keys)
		}
		for _, key := range keys {
			ttl, err := s.db.PTTL(t.Context(), key).Result()
			must(t, err)
			ofKey := strings.HasPrefix(key, keyKey(tag, "")) || slices.Contains([]string{accountKey(tag), keyIndexKey(tag), keyEndsKey(tag)}, key)
			if ttl <= 0 && !ofKey {
				t.Errorf("%s: %s does not expire", when, key)
			}
			if dump := s.db.Dump(t.Context(), key).Val(); strings.Contains(dump, secret) {
				holding = append(holding, key)
			}
		}
		if len(holding) != holders {
			t.Errorf("%s: %q contain the text, want %d keys", when, holding, holders)
		}
	}
	check("before the deletion", 3) // the messages, the vectors, and the journal of the live reply
	_, err = s.DeleteSession(t.Context(), owner, session.ID)
	must(t, err)
	check("after the deletion", 0)
	_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
	wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
	check("after EndTurn", 0)
	ctx = auth.WithAdmission(t.Context(), &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: 9, TokensPerMinute: 22 + reservation}})
	_, err = s.BeginTurn(ctx, owner, aTurn(newSession(t, s, owner).ID, "fits the limit, because the rest of the reservation was returned"))
	must(t, err)
}

func TestClearMessages_LeavesNoVectors(t *testing.T) {
	s, owner := newStore(t), newOwner()
	created, err := s.CreateSession(t.Context(), owner, conversation.NewSession{UserID: aUser, Context: conversation.ContextConfig{
		MaxTokens: 4096, CompressionEnabled: true, RetentionPolicy: conversation.Semantic,
	}})
	must(t, err)
	begun := begin(t, s, owner, aTurn(created.Session.ID, "hello"))
	end(t, s, begun.Key)
	must(t, s.SetVectors(t.Context(), owner, created.Session.ID, []conversation.ExchangeVector{{Reply: begun.Reply.ID, Vector: window.Vector("x")}}))
	there := func() int64 { return s.db.Exists(t.Context(), tagOfOwner(owner)+":e:"+created.Session.ID).Val() }
	same(t, "the vectors before", there(), 1)
	_, err = s.ClearMessages(t.Context(), owner, created.Session.ID, "clears")
	must(t, err)
	same(t, "the vectors after", there(), 0)
}

// reservation is the number of tokens that aTurn reserves in a new session: the message, the overhead of the message, the
// overhead of the prompt, and the reply room.
const reservation = 10 + 4 + 3 + 1024

// globOf returns the pattern for KEYS that matches only text.
func globOf(text string) string {
	return strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

func TestBeginTurn_LongHistory_ReadsOnlyWhatFitsWindow(t *testing.T) {
	s, owner := newStore(t), newOwner()
	session := newSession(t, s, owner)
	var last conversation.TurnStart
	for i := range 120 { // an exchange takes 23 tokens of the budget of 3069
		last = begin(t, s, owner, aTurn(session.ID, fmt.Sprint(i)))
		end(t, s, last.Key)
	}
	next := begin(t, s, owner, aTurn(session.ID, "next"))
	same(t, "the length of a history that fits", len(next.History), 240)
	same(t, "the newest message", next.History[239].ID, last.Reply.ID)
	end(t, s, next.Key)
	for range 40 {
		end(t, s, begin(t, s, owner, aTurn(session.ID, "more")).Key)
	}
	// 133 exchanges and a reply fit. BeginTurn returns one more message.
	same(t, "the length of a history that does not fit", len(begin(t, s, owner, aTurn(session.ID, "last")).History), 268)
}
