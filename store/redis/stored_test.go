package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/redis/redistest"
)

// withQuotas returns the context of a request by an owner with these quotas.
func withQuotas(t *testing.T, owner conversation.Owner, quotas limit.TierLimits) context.Context {
	quotas.RequestsPerMinute, quotas.TokensPerMinute = limit.MaxLimit, limit.MaxLimit
	p := auth.Principal{Account: owner.Account, Mode: string(owner.Mode)} // the declared key, which always works
	return auth.WithAdmission(t.Context(), &auth.Admission{Principal: p, Limits: quotas})
}

// TestQuota_ManyExpiredSessions_DoNotCount lets more sessions expire than one script prunes. The expired sessions that are not
// pruned yet must not count.
func TestQuota_ManyExpiredSessions_DoNotCount(t *testing.T) {
	t.Parallel()
	server := redistest.SingleWithClock(t)
	s, owner := open(t, server.URL), newOwner()
	create := func(ctx context.Context) error {
		_, err := s.CreateSession(ctx, owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
		return err
	}
	wantRefused := func(used int64) {
		t.Helper()
		refused := new(auth.QuotaError)
		if err := create(withQuotas(t, owner, limit.TierLimits{ActiveSessions: 2})); !errors.As(err, &refused) || refused.Used != used {
			t.Errorf("the error is %v, want a QuotaError with %d sessions", err, used)
		}
	}
	const expired = 3 * prunedAtOnce
	for range expired {
		must(t, create(t.Context()))
	}
	server.Advance(time.Hour)
	must(t, create(t.Context())) // a younger session keeps Redis from removing the indices
	wantRefused(expired + 1)
	server.Advance(oneDay - time.Hour + time.Minute)
	must(t, create(withQuotas(t, owner, limit.TierLimits{ActiveSessions: 2})))
	wantRefused(2)
	if left := s.db.ZCard(t.Context(), expiryKey(tagOfOwner(owner))).Val(); left != prunedAtOnce+2 {
		t.Errorf("the index has %d sessions, want %d that are not pruned and 2 others", left, prunedAtOnce)
	}
}

// TestSessionScripts_FewAndManyEntries_SameCommands runs operations for an owner with 10 other sessions and for an owner with
// 10,000. The deleted session has 1,000 or 10,000 idempotency keys. Redis must execute the same commands.
func TestSessionScripts_FewAndManyEntries_SameCommands(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	commandsOfSessionScripts(t, server, s, 1, 1000) // loads the scripts
	few, many := commandsOfSessionScripts(t, server, s, 10, 1000), commandsOfSessionScripts(t, server, s, 10_000, 10_000)
	for operation := range many {
		if !maps.Equal(few[operation], many[operation]) {
			t.Errorf("%s: the commands are %v for few entries, and %v for many", operation, few[operation], many[operation])
		}
	}
}

// commandsOfSessionScripts runs operations of a new owner, who has other sessions. For each operation, it returns how often
// Redis executed each command. The delete operation deletes a session that has the given number of idempotency keys.
func commandsOfSessionScripts(t *testing.T, server *redistest.Server, s *Store, others, keys int) map[string]map[string]int {
	t.Helper()
	owner := newOwner()
	tag, pipe := tagOfOwner(owner), s.db.Pipeline()
	deleted := liveTurn(t, s, owner)
	expires := float64(time.Now().Add(time.Hour).UnixMilli())
	for i := range others {
		id := fmt.Sprintf("session_%016d", i)
		pipe.ZAdd(t.Context(), expiryKey(tag), redis.Z{Score: expires, Member: id + ":" + aUser})
		pipe.ZAdd(t.Context(), sessionsKey(tag), redis.Z{Member: id})
	}
	for i := range keys {
		pipe.RPush(t.Context(), sessionRequestsKey(tag, deleted.SessionID), i)
	}
	_, err := pipe.Exec(t.Context())
	must(t, err)
	var turn conversation.TurnKey
	counts := make(map[string]map[string]int)
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"begin", func() error { turn = liveTurn(t, s, owner); return nil }},
		{"end", func() error { _, err := s.EndTurn(t.Context(), turn, anAnswer, conversation.Timing{}); return err }},
		{"list", func() error {
			_, err := s.Sessions(t.Context(), owner, conversation.SessionQuery{Limit: 5})
			return err
		}},
		{"usage", func() error { _, err := s.Usage(t.Context(), owner, 0, usage.Hour(1<<40)); return err }},
		{"delete", func() error {
			_, err := s.run(t.Context(), deleteSessionScript, tag, []string{sessionKey(tag, deleted.SessionID)}, deleted.SessionID)
			return err
		}},
	} {
		counts[op.name], _ = commands(t, server, func() { must(t, op.run()) })
		// A script counts a session's duration only if a millisecond has passed. The first such count sets the expiry of the day.
		delete(counts[op.name], "hincrby")
		delete(counts[op.name], "pexpireat")
	}
	return counts
}

// storedModel runs random operations on a store, and computes the bytes that the store must count.
type storedModel struct {
	t        *testing.T
	server   *redistest.Server
	store    *Store
	owner    conversation.Owner
	sessions map[string]*storedSession
	last     conversation.Time // the expiry time of the newest session; the count in Redis expires at that time
}

type storedSession struct {
	own, messages int64 // bytes
	expires       conversation.Time
}

// TestStoredBytes_RandomOperationsOverDays_CountedExactly runs random operations while the server's clock moves ahead. The count
// must equal the model's after each operation.
func TestStoredBytes_RandomOperationsOverDays_CountedExactly(t *testing.T) {
	t.Parallel()
	server := redistest.SingleWithClock(t)
	s := open(t, server.URL)
	rapid.Check(t, func(rt *rapid.T) {
		m := &storedModel{t: t, server: server, store: s, owner: newOwner(), sessions: make(map[string]*storedSession)}
		rt.Repeat(map[string]func(*rapid.T){
			"create": m.create, "turn": m.turn, "clear": m.clear, "delete": m.delete, "": m.check,
			"pass": func(rt *rapid.T) {
				server.Advance(time.Duration(rapid.SampledFrom([]int{1, 9, 30, 200, 700, 1500}).Draw(rt, "minutes")) * time.Minute)
			},
		})
	})
}

// want returns the bytes of all sessions that expire in the current storedPeriod or later. It returns 0 after the count
// has expired.
func (m *storedModel) want() int64 {
	now, period := conversation.TimeOf(m.server.Now()), func(at conversation.Time) int64 { return int64(at) / storedPeriod.Milliseconds() }
	sum := int64(0)
	for _, s := range m.sessions {
		if m.last > now && period(s.expires) >= period(now) {
			sum += s.own + s.messages
		}
	}
	return sum
}

// check compares the stored count with the model. If time changes the wanted count during the call of Usage, check
// calls Usage again.
func (m *storedModel) check(rt *rapid.T) {
	for {
		want := m.want()
		used, err := m.store.Usage(m.t.Context(), m.owner, 0, usage.Hour(1<<40))
		if want != m.want() {
			continue
		}
		if err != nil || used.StoredBytes != want {
			rt.Fatalf("%d bytes, %v, want %d", used.StoredBytes, err, want)
		}
		return
	}
}

// session returns a session that does not expire within a second, and so not during an operation.
func (m *storedModel) session(rt *rapid.T) (string, *storedSession) {
	for _, id := range slices.Sorted(maps.Keys(m.sessions)) {
		if s := m.sessions[id]; s.expires > conversation.TimeOf(m.server.Now()).Add(time.Second) && rapid.Bool().Draw(rt, "this session") {
			return id, s
		}
	}
	rt.Skip("no session")
	return "", nil
}

func (m *storedModel) create(rt *rapid.T) {
	metadata := []byte(`{"a":1}`)[:rapid.IntRange(0, 7).Draw(rt, "metadata")] // the store does not decode metadata
	made, err := m.store.CreateSession(m.t.Context(), m.owner, conversation.NewSession{
		UserID: aUser, Context: conversation.DefaultContextConfig, Metadata: metadata,
	})
	if err != nil {
		rt.Fatal(err)
	}
	if made.Session.CreatedAt >= m.last { // the count had expired, and begins again
		clear(m.sessions)
	}
	m.last = made.Session.ExpiresAt
	m.sessions[made.Session.ID] = &storedSession{own: int64(len(metadata)), expires: made.Session.ExpiresAt}
}

func (m *storedModel) turn(rt *rapid.T) {
	id, s := m.session(rt)
	content := strings.Repeat("é", rapid.IntRange(1, 40).Draw(rt, "length"))
	begun, err := m.store.BeginTurn(m.t.Context(), m.owner, aTurn(id, content))
	if err != nil {
		rt.Fatal(err)
	}
	if _, err = m.store.EndTurn(m.t.Context(), begun.Key, anAnswer, conversation.Timing{}); err != nil {
		rt.Fatal(err)
	}
	s.messages += int64(len(content) + len(anAnswer.Content))
}

func (m *storedModel) clear(rt *rapid.T) {
	id, s := m.session(rt)
	if _, err := m.store.ClearMessages(m.t.Context(), m.owner, id, "clears"); err != nil {
		rt.Fatal(err)
	}
	s.messages = 0
}

func (m *storedModel) delete(rt *rapid.T) {
	id, _ := m.session(rt)
	if _, err := m.store.DeleteSession(m.t.Context(), m.owner, id); err != nil {
		rt.Fatal(err)
	}
	delete(m.sessions, id)
}

// wantStored checks the bytes in an owner's quota storedBytes, and that Redis lets the counts expire.
func wantStored(t *testing.T, s *Store, owner conversation.Owner, when string, want int64) {
	t.Helper()
	used, err := s.Usage(t.Context(), owner, 0, usage.Hour(1<<40))
	must(t, err)
	if used.StoredBytes != want {
		t.Errorf("%s: %d bytes, want %d", when, used.StoredBytes, want)
	}
	if left := s.db.PTTL(t.Context(), storedKey(tagOfOwner(owner))).Val(); left == -1 {
		t.Errorf("%s: the counts never expire", when)
	}
}

// TestStoredBytes_SessionOfEarlierVersion_CountedFromNow removes the counts of two sessions, as if a node of an earlier version
// had created them.
func TestStoredBytes_SessionOfEarlierVersion_CountedFromNow(t *testing.T) {
	s, owner := newStore(t), newOwner()
	tag := tagOfOwner(owner)
	cleared, deleted := liveTurn(t, s, owner), liveTurn(t, s, owner)
	for _, key := range []conversation.TurnKey{cleared, deleted} {
		must(t, s.db.HDel(t.Context(), sessionKey(tag, key.SessionID), "bytes").Err())
	}
	must(t, s.db.Del(t.Context(), storedKey(tag)).Err())
	wantStored(t, s, owner, "before a node of this version counts", 0)
	for _, key := range []conversation.TurnKey{cleared, deleted} {
		reply := anAnswer
		reply.Content = "ten bytes!"
		_, err := s.EndTurn(t.Context(), key, reply, conversation.Timing{})
		must(t, err)
	}
	wantStored(t, s, owner, "after two replies", 20)
	_, err := s.ClearMessages(t.Context(), owner, cleared.SessionID, "clears")
	must(t, err)
	wantStored(t, s, owner, "after a clear", 10)
	must(t, s.db.HDel(t.Context(), storedKey(tag), "total").Err()) // a lost count must not become negative
	_, err = s.DeleteSession(t.Context(), owner, deleted.SessionID)
	must(t, err)
	if used, err := s.Usage(t.Context(), owner, 0, usage.Hour(1<<40)); err != nil || used.StoredBytes > 0 {
		t.Errorf("%d bytes, %v", used.StoredBytes, err)
	}
}

// TestStoredBytes_ClockSetBack_NeverNegative sets the clock back after the bytes of a period have stopped counting. A session
// of that period then exists again, because the test keeps Redis from removing the session.
func TestStoredBytes_ClockSetBack_NeverNegative(t *testing.T) {
	t.Parallel()
	server := redistest.SingleWithClock(t)
	s, owner := open(t, server.URL), newOwner()
	tag := tagOfOwner(owner)
	old := liveTurn(t, s, owner)
	server.Advance(time.Hour)
	liveTurn(t, s, owner)
	must(t, s.db.Persist(t.Context(), sessionKey(tag, old.SessionID)).Err())
	server.Advance(oneDay - time.Hour/2)
	wantStored(t, s, owner, "after the expiry of the first session", 10)
	server.Advance(-time.Hour)
	_, err := s.EndTurn(t.Context(), old, anAnswer, conversation.Timing{})
	must(t, err)
	wantStored(t, s, owner, "after a reply with the clock set back", 10)
	_, err = s.DeleteSession(t.Context(), owner, old.SessionID)
	must(t, err)
	wantStored(t, s, owner, "after a delete with the clock set back", 10)
}

func TestStoredBytes_OrphanEnded_TextCounted(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t).URL
	a, _ := join(t, url)
	b, _ := join(t, url)
	owner := newOwner()
	key := liveTurn(t, a, owner)
	journalText(t, a, key, 0, "half")
	wantStored(t, b, owner, "while the reply is live", 10)
	die(t, a)
	await(t, "the orphan has ended", func() bool {
		n, err := b.EndOrphans(t.Context(), lengthOf)
		return err == nil && n == 1
	})
	wantStored(t, b, owner, "after the end of the orphan", 14)
}

// TestDeleteSession_ManyIdempotencyKeys_AllRecordsRemoved deletes a session with more idempotency keys than one script removes. A
// key that another session has used since must stay.
func TestDeleteSession_ManyIdempotencyKeys_AllRecordsRemoved(t *testing.T) {
	s, owner := newStore(t), newOwner()
	tag := tagOfOwner(owner)
	once := func(key string) *conversation.Idempotency { return &conversation.Idempotency{Key: key} }
	create := func(key string) string {
		made, err := s.CreateSession(t.Context(), owner, conversation.NewSession{
			UserID: aUser, Context: conversation.DefaultContextConfig, Idempotency: once(key),
		})
		must(t, err)
		return made.Session.ID
	}
	deleted, kept := create("creation"), create("other creation")
	for i := range 3 {
		turn := aTurn(deleted, "hello")
		turn.Idempotency = once(fmt.Sprint("send ", i))
		begun, err := s.BeginTurn(t.Context(), owner, turn)
		must(t, err)
		_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
		must(t, err)
	}
	pipe := s.db.Pipeline()
	for i := range 3*requestsForgottenAtOnce - 4 { // with the four keys above, a multiple of requestsForgottenAtOnce
		key := fmt.Sprint("filled ", i)
		pipe.RPush(t.Context(), sessionRequestsKey(tag, deleted), key)
		pipe.HSet(t.Context(), requestKey(tag, key), "session", deleted)
	}
	pipe.RPush(t.Context(), sessionRequestsKey(tag, deleted), "used again")
	pipe.HSet(t.Context(), requestKey(tag, "used again"), "session", kept)
	_, err := pipe.Exec(t.Context())
	must(t, err)
	_, err = s.DeleteSession(t.Context(), owner, deleted)
	must(t, err)
	left, err := s.db.Keys(t.Context(), requestKey(tag, "*")).Result()
	must(t, err)
	want := map[string]bool{requestKey(tag, "other creation"): true, requestKey(tag, "used again"): true}
	if len(left) != len(want) || !want[left[0]] || !want[left[1]] {
		t.Errorf("%d records are left, such as %q; want two of the other session", len(left), left[:min(len(left), 3)])
	}
	if n := s.db.Exists(t.Context(), sessionRequestsKey(tag, deleted)).Val(); n != 0 {
		t.Error("the deleted session's list of idempotency keys is left")
	}
}
