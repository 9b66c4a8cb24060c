package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
)

func settingsTests() []test {
	return []test{
		{"instructions and model are read back", settingsReadBack},
		{"update replaces settings and keeps all else", updateSettings},
		{"update that change refuses has no effect", updateRefused},
		{"concurrent updates are all kept", racingUpdates},
		{"live turn ends after an update", updateLive},
		{"instructions and reply room shrink the window", settingsShrinkWindow},
		{"turn reserves the instructions and the reply room", settingsReserved},
		{"new policy is refused if the index lacks messages", policyRefused},
		{"policy of an empty session can change", policyOfEmpty},
		{"system messages stay in the index of a fifo session", systemStaysIndexed},
		{"settings count in the quota storedBytes", settingsQuota},
		{"repeated create returns the settings", settingsReplayed},
	}
}

// configured returns a new session that has all settings.
func configured() conversation.NewSession {
	temperature, topP, seed := 0.0, 0.25, int64(-1<<53)
	session := plain()
	session.Metadata, session.Instructions, session.InstructionTokens = json.RawMessage(`{"a":1}`), "Answer as a pirate. \x01ß", 7
	session.Model = conversation.ModelConfig{
		Model: "fast", Temperature: &temperature, TopP: &topP, MaxOutputTokens: 99, Stop: []string{"END", "\n"}, Seed: &seed, ReasoningEffort: "low",
	}
	return session
}

func (s *subject) update(t *testing.T, sessionID string, change func(*conversation.Session)) conversation.Session {
	t.Helper()
	updated, err := s.store.UpdateSession(s.ctx, s.owner, sessionID, func(session *conversation.Session) error {
		change(session)
		return nil
	})
	must(t, err, "UpdateSession")
	return updated
}

func settingsReadBack(t *testing.T, s *subject) {
	wanted := configured()
	made := s.create(t, wanted)
	want := wanted.Session()
	want.ID, want.CreatedAt, want.ExpiresAt, want.LastActivity = made.ID, made.CreatedAt, made.ExpiresAt, made.CreatedAt
	same(t, "the created session", made, want)
	same(t, "Session", s.session(t, made.ID), want)
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 1})
	must(t, err, "Sessions")
	same(t, "Sessions", page.Sessions, []conversation.Session{want.Short()})
	c, err := s.store.Context(s.ctx, s.owner, made.ID, 1)
	must(t, err, "Context")
	same(t, "Context", c.Session, want)
	begun := s.begin(t, question(made.ID, "hello"))
	same(t, "the instructions of the turn", []any{begun.Session.Instructions, begun.Session.InstructionTokens}, []any{want.Instructions, want.InstructionTokens})
	same(t, "the model of the turn", begun.Session.Model, want.Model)
	s.end(t, begun.Key, answer("aye"))
	s.clear(t, made.ID, "clears")
	after := s.session(t, made.ID)
	same(t, "the instructions after a turn and a clear", after.Instructions, want.Instructions)
	same(t, "the model after a turn and a clear", after.Model, want.Model)
}

func updateSettings(t *testing.T, s *subject) {
	made := s.create(t, configured())
	s.exchange(t, made.ID, "hello")
	want := s.session(t, made.ID)
	for _, change := range []func(*conversation.Session){
		func(s *conversation.Session) { s.Metadata = json.RawMessage(`{"b":[]}`) },
		func(s *conversation.Session) { s.Instructions, s.InstructionTokens = "Be brief.", 3 },
		func(s *conversation.Session) { s.Model = conversation.ModelConfig{Stop: []string{"x"}} },
		func(s *conversation.Session) { s.Context.MaxTokens, s.Context.CompressionEnabled = 777, false },
		func(s *conversation.Session) { s.Metadata, s.Model = nil, conversation.ModelConfig{} },
		func(s *conversation.Session) { s.Instructions, s.InstructionTokens = "", 0 },
		func(s *conversation.Session) { s.Instructions, s.InstructionTokens = "And again.", 3 },
		func(*conversation.Session) {},
	} {
		change(&want)
		same(t, "the result of UpdateSession", s.update(t, made.ID, change), want)
		same(t, "Session", s.session(t, made.ID), want)
	}
	same(t, "the number of messages", len(s.history(t, made.ID)), 2)
	asked, _ := s.exchange(t, made.ID, "and on")
	same(t, "the next message", s.message(t, made.ID, asked.ID).Content, "and on")
}

func updateRefused(t *testing.T, s *subject) {
	made, refusal := s.create(t, configured()), errors.New("refused")
	_, err := s.store.UpdateSession(s.ctx, s.owner, made.ID, func(session *conversation.Session) error {
		session.Instructions, session.Metadata = "other", nil
		return refusal
	})
	wantError(t, "UpdateSession", err, refusal)
	same(t, "the session", s.session(t, made.ID), made)
}

// Each caller adds a field to the metadata. No update may overwrite another.
func racingUpdates(t *testing.T, s *subject) {
	const callers, each = 4, 5
	made := s.create(t, plain())
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			for j := range each {
				_, err := s.store.UpdateSession(s.ctx, s.owner, made.ID, func(session *conversation.Session) error {
					fields := map[string]bool{}
					_ = json.Unmarshal(session.Metadata, &fields)
					fields[fmt.Sprintf("%d.%d", i, j)] = true
					session.Metadata, _ = json.Marshal(fields)
					return nil
				})
				if err != nil {
					t.Errorf("UpdateSession: %v", err)
				}
			}
		})
	}
	work.Wait()
	fields := map[string]bool{}
	must(t, json.Unmarshal(s.session(t, made.ID).Metadata, &fields), "the metadata")
	same(t, "the number of fields", len(fields), callers*each)
}

func updateLive(t *testing.T, s *subject) {
	made := s.create(t, configured())
	begun := s.begin(t, question(made.ID, "hello"))
	want := begun.Session
	want.Instructions, want.InstructionTokens, want.Context.CompressionEnabled = "Now in verse.", 4, false
	updated := s.update(t, made.ID, func(s *conversation.Session) {
		s.Instructions, s.InstructionTokens, s.Context.CompressionEnabled = "Now in verse.", 4, false
	})
	same(t, "the session with a live turn", updated, want)
	s.end(t, begun.Key, answer("aye"))
	same(t, "the instructions of the next turn", s.begin(t, question(made.ID, "more")).Session.Instructions, "Now in verse.")
}

func settingsShrinkWindow(t *testing.T, s *subject) {
	for _, compression := range []bool{true, false} {
		session := plain()
		session.Context = conversation.ContextConfig{MaxTokens: 200, CompressionEnabled: compression, RetentionPolicy: conversation.FIFO}
		session.Instructions, session.InstructionTokens, session.Model.MaxOutputTokens = "Short.", 40, 30
		made := s.create(t, session)
		budget := 200 - 30 - 40 - window.MessageOverhead - window.PromptOverhead
		same(t, "the budget", made.Window().Budget(), budget)
		s.overflows(t, made.ID, budget-window.MessageOverhead+1)
		turn := question(made.ID, "fits")
		turn.Tokens = budget - window.MessageOverhead
		s.end(t, s.begin(t, turn).Key, answer("a"))
		if compression {
			continue
		}
		s.overflows(t, made.ID, 1)
		s.update(t, made.ID, func(s *conversation.Session) { s.Model.MaxOutputTokens = 1 })
		s.begin(t, question(made.ID, "fits now"))
	}
}

func settingsReserved(t *testing.T, s *subject) {
	session := plain()
	session.Context.MaxTokens, session.InstructionTokens, session.Instructions, session.Model.MaxOutputTokens = 200, 30, "Short.", 20
	first, second := s.create(t, session), s.create(t, session)
	need := estimate(first)
	same(t, "the estimate", need, inPrompt(10)+window.PromptOverhead+30+window.MessageOverhead+20)
	p := s.key(t)
	begin := func(session conversation.Session, tokensPerMinute int) error {
		ctx, _ := s.request(p, limit.TierLimits{RequestsPerMinute: 100, TokensPerMinute: tokensPerMinute})
		_, err := s.store.BeginTurn(ctx, s.owner, question(session.ID, "hello"))
		return err
	}
	must(t, begin(first, 2*need-1), "BeginTurn")
	refused(t, "the second turn", begin(second, 2*need-1), limit.ByTokens)
	must(t, begin(second, 2*need), "BeginTurn within the limit")
}

// wantPolicyRefused checks that a session with messages cannot get the policy next.
func wantPolicyRefused(t *testing.T, s *subject, sessionID string, next conversation.RetentionPolicy) {
	t.Helper()
	before := s.session(t, sessionID)
	_, err := s.store.UpdateSession(s.ctx, s.owner, sessionID, func(session *conversation.Session) error {
		session.Context.RetentionPolicy, session.Metadata = next, nil
		return nil
	})
	if refused, ok := errors.AsType[*conversation.SettingsError](err); !ok || refused.Field != "contextConfig.retentionPolicy" {
		t.Errorf("from %s to %s: error %v, want an error about the policy", before.Context.RetentionPolicy, next, err)
	}
	same(t, "the session", s.session(t, sessionID), before)
}

func policyRefused(t *testing.T, s *subject) {
	for _, test := range []struct {
		from             conversation.RetentionPolicy
		refused, allowed []conversation.RetentionPolicy // the allowed policies in a possible order
	}{
		{conversation.FIFO, []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic}, []conversation.RetentionPolicy{conversation.FIFO}},
		{conversation.Priority, []conversation.RetentionPolicy{conversation.Semantic}, []conversation.RetentionPolicy{conversation.Priority, conversation.FIFO}},
		{conversation.Semantic, nil, []conversation.RetentionPolicy{conversation.Semantic, conversation.Priority, conversation.FIFO}},
	} {
		session := configured()
		session.Context.RetentionPolicy = test.from
		made := s.create(t, session)
		live := s.begin(t, question(made.ID, "hello"))
		for _, next := range test.refused {
			wantPolicyRefused(t, s, made.ID, next)
		}
		s.end(t, live.Key, answer("aye"))
		for _, next := range test.refused {
			wantPolicyRefused(t, s, made.ID, next)
		}
		for _, next := range test.allowed {
			updated := s.update(t, made.ID, func(s *conversation.Session) { s.Context.RetentionPolicy = next })
			same(t, "the policy", updated.Context.RetentionPolicy, next)
			s.exchange(t, made.ID, "more") // the index has each message, or the session needs none
			c, err := s.store.Context(s.ctx, s.owner, made.ID, 100_000)
			must(t, err, "Context")
			want := 0
			if next != conversation.FIFO {
				want = c.Session.MessageCount
			}
			same(t, fmt.Sprintf("the size of the index from %s to %s", test.from, next), len(c.Index), want)
		}
	}
}

func systemStaysIndexed(t *testing.T, s *subject) {
	for _, from := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		session := plain()
		session.Context.RetentionPolicy = from
		made := s.create(t, session)
		rule := question(made.ID, "You are a pirate.")
		rule.Role = conversation.System
		begun := s.begin(t, rule)
		s.end(t, begun.Key, answer("aye"))
		s.exchange(t, made.ID, "more")
		for _, maxTokens := range []int{5000, 6000} { // the second change leaves the policy as it is
			s.update(t, made.ID, func(s *conversation.Session) {
				s.Context.RetentionPolicy, s.Context.MaxTokens = conversation.FIFO, maxTokens
			})
			c := s.context(t, made.ID, 100_000)
			same(t, "the size of the index from "+string(from), len(c.Index), 1)
			same(t, "the indexed message", c.Index[0].ID, begun.Message.ID)
		}
	}
}

func policyOfEmpty(t *testing.T, s *subject) {
	made := s.create(t, plain())
	s.exchange(t, made.ID, "hello")
	s.clear(t, made.ID, "clears")
	s.update(t, made.ID, func(s *conversation.Session) { s.Context.RetentionPolicy = conversation.Semantic })
	s.exchange(t, made.ID, "lighthouses")
	c, err := s.store.Context(s.ctx, s.owner, made.ID, 100_000)
	must(t, err, "Context")
	same(t, "the size of the index", len(c.Index), 2)
}

func settingsQuota(t *testing.T, s *subject) {
	fifty := limit.TierLimits{StoredBytes: 50}
	session := plain()
	session.Metadata, session.Instructions = json.RawMessage(`{"a":"ten"}`), "twenty-nine bytes are in here" // 11 and 29 bytes
	made, err := s.createIn(fifty, session)
	must(t, err, "CreateSession")
	same(t, "the bytes", s.storedBytes(t), 40)
	set := func(instructions string) error {
		_, err := s.store.UpdateSession(s.within(fifty), s.owner, made.Session.ID, func(s *conversation.Session) error {
			s.Instructions = instructions
			return nil
		})
		return err
	}
	wantQuotaError(t, set("forty bytes are more than are left of it"), auth.QuotaError{Quota: limit.QuotaStoredBytes, Used: 40, Limit: 50})
	same(t, "the session after the refusal", s.session(t, made.Session.ID), made.Session)
	must(t, set("thirty-nine bytes are all that is left."), "an update that fits")
	same(t, "the bytes after the update", s.storedBytes(t), 50)
	must(t, set("short"), "a shorter update")
	same(t, "the bytes after the shorter update", s.storedBytes(t), 16)
	s.exchange(t, made.Session.ID, "hello")
	s.clear(t, made.Session.ID, "clears")
	same(t, "the bytes after a clear", s.storedBytes(t), 16)
	_, err = s.store.DeleteSession(s.ctx, s.owner, made.Session.ID)
	must(t, err, "DeleteSession")
	same(t, "the bytes after a delete", s.storedBytes(t), 0)
}

func settingsReplayed(t *testing.T, s *subject) {
	session := configured()
	session.Idempotency = request("create", "a")
	made := s.create(t, session)
	session.InstructionTokens++ // another node may count with another vocabulary
	again, err := s.store.CreateSession(s.ctx, s.owner, session)
	must(t, err, "the repeated CreateSession")
	same(t, "the repeated CreateSession", again, conversation.SessionCreated{Session: made, Replayed: true})
}
