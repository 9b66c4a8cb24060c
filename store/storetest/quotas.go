package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/stream"
)

func quotaTests() []test {
	return []test{
		{"free tier creates 100 of 194 sessions", sessionQuota},
		{"ten concurrent creates fill a quota of 3 sessions", racingSessions},
		{"replay ignores a full quota, and a delete makes room", sessionQuotaFrees},
		{"message and session over storedBytes are refused", bytesQuota},
		{"reply may exceed storedBytes", replyOverQuota},
		{"refused turn over storedBytes grants the next waiter", quotaGrantsNext},
		{"clear and delete lower storedBytes", bytesGivenBack},
		{"random operations count the bytes exactly", bytesRecounted},
		{"usage has the figures of all quotas", usageOfQuotas},
		{"context with embeddings counts tokens a minute", contextTakesTokens},
	}
}

// within returns the context of a request by an account with these quotas.
func (s *subject) within(quotas limit.TierLimits) context.Context {
	quotas.RequestsPerMinute, quotas.TokensPerMinute = 1_000_000, 1_000_000
	p := auth.Principal{Account: s.owner.Account, Mode: string(s.owner.Mode)} // the declared key, which always works
	ctx, _ := s.request(p, quotas)
	return ctx
}

// createIn creates a session in a request by an account with these quotas.
func (s *subject) createIn(quotas limit.TierLimits, session conversation.NewSession) (conversation.SessionCreated, error) {
	return s.store.CreateSession(s.within(quotas), s.owner, session)
}

func sessionQuota(t *testing.T, s *subject) {
	tiers := limit.DefaultTiers()
	free, _ := tiers.Limits(limit.Free)
	made, refused := 0, 0
	for range 194 {
		switch _, err := s.createIn(free, plain()); {
		case err == nil:
			made++
		default:
			wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaActiveSessions, Used: 100, Limit: 100})
			refused++
		}
	}
	same(t, "created and refused sessions", []int{made, refused}, []int{100, 94})
	used, err := s.store.Usage(s.ctx, s.owner, 0, 1<<30)
	must(t, err, "Usage")
	same(t, "the active sessions", used.Active, 100)
	other := s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
	_, err = other.createIn(free, plain())
	must(t, err, "CreateSession in the other mode")
	s.create(t, plain()) // without an admission, there is no quota
}

func racingSessions(t *testing.T, s *subject) {
	var created atomic.Int32
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			_, err := s.createIn(limit.TierLimits{ActiveSessions: 3}, plain())
			if _, refused := errors.AsType[*auth.QuotaError](err); !refused && err != nil {
				t.Errorf("CreateSession: %v", err)
			}
			if err == nil {
				created.Add(1)
			}
		})
	}
	callers.Wait()
	same(t, "the number of created sessions", created.Load(), 3)
}

func sessionQuotaFrees(t *testing.T, s *subject) {
	two := limit.TierLimits{ActiveSessions: 2}
	full := auth.QuotaError{Quota: limit.QuotaActiveSessions, Used: 2, Limit: 2}
	repeated := plain()
	repeated.Idempotency = request("k", "a")
	first, err := s.createIn(two, repeated)
	must(t, err, "CreateSession")
	second := s.create(t, plain())
	again, err := s.createIn(two, repeated)
	must(t, err, "the repeated CreateSession")
	same(t, "the repeated CreateSession", again, conversation.SessionCreated{Session: first.Session, Replayed: true})
	refused := plain()
	refused.Idempotency = request("other", "b")
	_, err = s.createIn(two, refused)
	wantQuotaError(t, err, full)
	_, err = s.store.DeleteSession(s.ctx, s.owner, second.ID)
	must(t, err, "DeleteSession")
	made, err := s.createIn(two, refused) // the refusal has stored nothing
	must(t, err, "CreateSession after a delete")
	same(t, "whether the create is a replay", made.Replayed, false)
	_, err = s.createIn(two, plain())
	wantQuotaError(t, err, full)
}

// storedBytes returns the bytes in the owner's quota storedBytes.
func (s *subject) storedBytes(t *testing.T) int64 {
	t.Helper()
	used, err := s.store.Usage(s.ctx, s.owner, 0, 1<<30)
	must(t, err, "Usage")
	return used.StoredBytes
}

func bytesQuota(t *testing.T, s *subject) {
	thirty := limit.TierLimits{StoredBytes: 30}
	session := plain()
	session.Metadata = json.RawMessage(`{"a":"ten"}`) // 11 bytes
	made, err := s.createIn(thirty, session)
	must(t, err, "CreateSession")
	full := auth.QuotaError{Quota: limit.QuotaStoredBytes, Used: 11, Limit: 30}
	larger := plain()
	larger.Metadata = json.RawMessage(`{"a":"nineteen by"}`) // 19 bytes: all that is left
	turn := once(made.Session.ID, "ünïcode", "k")            // 9 bytes
	turn.Metadata = json.RawMessage(`{"a":"two"}`)           // 11 bytes
	before := s.session(t, made.Session.ID)
	_, err = s.store.BeginTurn(s.within(thirty), s.owner, turn)
	wantQuotaError(t, err, full)
	same(t, "the session after the refusal", s.session(t, made.Session.ID), before)
	same(t, "the bytes after the refusal", s.storedBytes(t), 11)
	turn.Metadata = json.RawMessage(`{"a":"y"}`) // 9 bytes
	begun, err := s.store.BeginTurn(s.within(thirty), s.owner, turn)
	must(t, err, "BeginTurn")
	same(t, "the bytes of the session and the message", s.storedBytes(t), 29)
	again, err := s.store.BeginTurn(s.within(thirty), s.owner, once(made.Session.ID, "ünïcode", "k"))
	must(t, err, "the repeated BeginTurn")
	same(t, "the replayed turn", again.Replayed, &conversation.Replayed{SentID: begun.Message.ID, ReplyID: begun.Reply.ID})
	_, err = s.createIn(thirty, larger)
	wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaStoredBytes, Used: 29, Limit: 30})
	_, err = s.store.DeleteSession(s.ctx, s.owner, made.Session.ID)
	must(t, err, "DeleteSession")
	_, err = s.createIn(thirty, larger)
	must(t, err, "CreateSession after a delete")
	s.begin(t, question(s.create(t, plain()).ID, strings.Repeat("x", 100))) // without an admission, there is no quota
}

func replyOverQuota(t *testing.T, s *subject) {
	ten := limit.TierLimits{StoredBytes: 10}
	session := s.create(t, plain())
	begun, err := s.store.BeginTurn(s.within(ten), s.owner, question(session.ID, "ten bytes!"))
	must(t, err, "BeginTurn")
	reply, err := s.store.EndTurn(s.within(ten), begun.Key, answer("a longer reply than the quota"), timing)
	must(t, err, "EndTurn")
	same(t, "the reply", reply.Content, "a longer reply than the quota")
	same(t, "the bytes", s.storedBytes(t), 39)
	_, err = s.store.BeginTurn(s.within(ten), s.owner, question(session.ID, "x"))
	wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaStoredBytes, Used: 39, Limit: 10})
}

func quotaGrantsNext(t *testing.T, s *subject) {
	ten := limit.TierLimits{StoredBytes: 10}
	session := s.create(t, plain())
	running := s.begin(t, question(session.ID, "first"))
	large, small := question(session.ID, "too large for it"), question(session.ID, "tiny")
	first, err := s.store.BeginTurn(s.within(ten), s.owner, large)
	must(t, err, "BeginTurn")
	second := s.queue(t, small)
	s.end(t, running.Key, answer(""))
	granted(t, first.Queued)
	_, err = s.store.BeginTurn(s.within(ten), s.owner, large)
	wantQuotaError(t, err, auth.QuotaError{Quota: limit.QuotaStoredBytes, Used: 5, Limit: 10})
	granted(t, second)
	begun, err := s.store.BeginTurn(s.within(ten), s.owner, small)
	must(t, err, "BeginTurn of the next waiter")
	same(t, "the message", begun.Message.Content, "tiny")
}

func bytesGivenBack(t *testing.T, s *subject) {
	session := plain()
	session.Metadata = json.RawMessage(`{"kept":true}`) // 13 bytes
	made := s.create(t, session)
	s.exchange(t, made.ID, "hello") // 5 bytes, and 8 bytes of the reply "to hello"
	same(t, "the bytes after an exchange", s.storedBytes(t), 26)
	live := s.begin(t, question(made.ID, "question"))
	s.journal(t, live.Key, 0, "text of a live reply does not count")
	same(t, "the bytes while a reply is live", s.storedBytes(t), 34)
	s.end(t, live.Key, answer("42"))
	_, err := s.store.ClearMessages(s.ctx, s.owner, made.ID, "clears")
	must(t, err, "ClearMessages")
	same(t, "the bytes after a clear", s.storedBytes(t), 13)
	s.exchange(t, made.ID, "hello")
	_, err = s.store.DeleteSession(s.ctx, s.owner, made.ID)
	must(t, err, "DeleteSession")
	same(t, "the bytes after a delete", s.storedBytes(t), 0)
}

// bytesRecounted runs random operations. After every tenth operation, it compares the counted bytes with the bytes of all
// sessions and messages.
func bytesRecounted(t *testing.T, s *subject) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := &randomBytes{subject: s, random: rand.New(rand.NewPCG(seed, 1)), live: make(map[string]conversation.TurnKey)}
	for step := range 300 {
		if len(r.sessions) == 0 || r.random.IntN(8) == 0 {
			session := plain()
			session.Metadata, session.Instructions = r.metadata(), r.instructions()
			r.sessions = append(r.sessions, s.create(t, session).ID)
		}
		r.step(t, r.random.IntN(len(r.sessions)))
		if step%10 == 9 {
			same(t, fmt.Sprintf("the bytes after step %d", step), s.storedBytes(t), s.recount(t))
		}
	}
}

// randomBytes stores and removes messages and sessions of random sizes.
type randomBytes struct {
	*subject
	random   *rand.Rand
	sessions []string                        // ids
	live     map[string]conversation.TurnKey // live turns, by session
}

// metadata returns random metadata. About half of the calls return nil.
func (r *randomBytes) metadata() json.RawMessage {
	if r.random.IntN(2) == 0 {
		return nil
	}
	return fmt.Appendf(nil, `{"m":%q}`, strings.Repeat("ä", r.random.IntN(50)))
}

// instructions returns random instructions. About half of the calls return "".
func (r *randomBytes) instructions() string {
	return strings.Repeat("ß", max(0, r.random.IntN(100)-50))
}

// step runs a random operation on the session r.sessions[i].
func (r *randomBytes) step(t *testing.T, i int) {
	t.Helper()
	id := r.sessions[i]
	key, isLive := r.live[id]
	switch n := r.random.IntN(13); {
	case n == 12:
		s := r.update(t, id, func(s *conversation.Session) { s.Metadata, s.Instructions = r.metadata(), r.instructions() })
		same(t, "the updated session", s, r.session(t, id))
	case n == 0:
		_, err := r.store.DeleteSession(r.ctx, r.owner, id)
		must(t, err, "DeleteSession")
		r.sessions = slices.Delete(r.sessions, i, i+1)
		if isLive { // the late end of a turn stores no reply
			_, err := r.store.EndTurn(r.ctx, key, answer("late"), timing)
			wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
		}
	case n == 1 && !isLive:
		_, err := r.store.ClearMessages(r.ctx, r.owner, id, "clears")
		must(t, err, "ClearMessages")
	case isLive:
		reply := answer(strings.Repeat("ö", r.random.IntN(300)))
		reply.Status = []stream.State{stream.Completed, stream.Failed, stream.Cancelled}[r.random.IntN(3)]
		r.end(t, key, reply)
		_, err := r.store.EndTurn(r.ctx, key, reply, timing) // a repeat counts nothing
		wantError(t, "a repeated EndTurn", err, conversation.ErrFenced)
		delete(r.live, id)
	default:
		turn := question(id, strings.Repeat("x", 1+r.random.IntN(300)))
		turn.Metadata = r.metadata()
		r.live[id] = r.begin(t, turn).Key
	}
}

// recount reads all sessions and messages of the owner, and returns the sum of their bytes.
func (s *subject) recount(t *testing.T) (sum int64) {
	t.Helper()
	for _, listed := range s.pages(t, conversation.SessionQuery{Limit: 20}) {
		session := s.session(t, listed.ID)
		sum += int64(session.StoredBytes())
		for _, m := range s.history(t, session.ID) {
			sum += int64(m.StoredBytes())
		}
	}
	return sum
}

func usageOfQuotas(t *testing.T, s *subject) {
	s.createKey(t, s.newKey())
	revoked := s.createKey(t, s.newKey())
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), revoked.ID, auth.CLI), "RevokeKey")
	s.exchange(t, s.create(t, plain()).ID, "hello")
	for range 2 {
		_, err := s.keys.OpenSocket(s.ctx, s.keyOwner())
		must(t, err, "OpenSocket")
	}
	used, err := s.store.Usage(s.ctx, s.owner, 0, 1<<30)
	must(t, err, "Usage")
	same(t, "keys, sessions, bytes and sockets", []int64{used.Keys, int64(used.Active), used.StoredBytes, used.Sockets}, []int64{1, 1, 13, 2})
}

func contextTakesTokens(t *testing.T, s *subject) {
	session, p := s.create(t, choosing(conversation.Semantic)), s.key(t)
	figures := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 25}
	read := func() error {
		ctx, _ := s.request(p, figures)
		_, err := s.store.Context(ctx, s.owner, session.ID, 10)
		return err
	}
	var last conversation.Message
	for range 6 {
		_, last = s.exchange(t, session.ID, "hello")
	}
	for range 5 { // without embeddings, a context takes no tokens
		must(t, read(), "Context")
	}
	s.setVectors(t, session.ID, last.ID)
	for range 2 {
		must(t, read(), "Context")
	}
	refused(t, "Context", read(), limit.ByTokens)
	s.context(t, session.ID, 10) // without an admission, there is no limit
}
