package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

func contextTests() []test {
	return []test{
		{"Context equals the context of BeginTurn", contextOfTurn},
		{"history of a context lacks metadata", contextLacksMetadata},
		{"history of a context is bounded in bytes", contextBounded},
		{"live reply has its journalled text", contextOfLive},
		{"priority context with a live reply has an index", indexOfLive},
		{"index is returned only if a policy must choose", indexWhereNeeded},
		{"fifo index has only system messages", indexOfFIFO},
		{"indexed message has all fields", indexedMessage},
		{"vectors of replies are stored", vectorsOfReplies},
		{"vectors without an ended semantic reply are ignored", vectorsOfNothing},
		{"MessagesByID keeps the order of the ids", messagesByID},
		{"another owner's session is not found", contextOfOthers},
	}
}

// choosing returns a new session with a policy that chooses messages, and a budget of 93 tokens: five turns of 23 tokens do not
// fit.
func choosing(policy conversation.RetentionPolicy) conversation.NewSession {
	session := plain()
	session.Context = conversation.ContextConfig{MaxTokens: 128, CompressionEnabled: true, RetentionPolicy: policy}
	return session
}

// context returns the result of Context. Summary must return the same session and summary.
func (s *subject) context(t *testing.T, sessionID string, tokens int) conversation.Context {
	t.Helper()
	c, err := s.store.Context(s.ctx, s.owner, sessionID, tokens)
	must(t, err, "Context")
	session, summary, err := s.store.Summary(s.ctx, s.owner, sessionID)
	must(t, err, "Summary")
	same(t, "the session of Summary", session, c.Session)
	same(t, "the summary of Summary", summary, c.Summary)
	return c
}

// forPrompt returns copies of messages without Usage, Context and Error, which no prompt needs.
func forPrompt(messages []conversation.Message) []conversation.Message {
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].Usage, messages[i].Context, messages[i].Error = nil, nil, nil
	}
	return messages
}

func contextOfTurn(t *testing.T, s *subject) {
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy))
		for i := range 6 {
			before := s.session(t, session.ID)
			c := s.context(t, session.ID, 10)
			same(t, "the session", c.Session, before)
			same(t, "the session afterwards", s.session(t, session.ID), before)
			begun := s.begin(t, question(session.ID, fmt.Sprint("question ", i)))
			same(t, "the history", begun.History, c.History)
			same(t, "the index", begun.Index, c.Index)
			same(t, "the summary", begun.Summary, c.Summary)
			same(t, "whether there is an index", len(c.Index) > 0, policy != conversation.FIFO && 23*i+14 > window.Size{MaxTokens: 128}.Budget())
			s.end(t, begun.Key, answer("an answer"))
			if i == 3 {
				s.saveSummary(t, session.ID, "", conversation.Summary{Text: "so far", Tokens: 2, Last: begun.Reply.ID, Count: 8})
			}
		}
	}
}

func contextLacksMetadata(t *testing.T, s *subject) {
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy))
		metadata := []string{"", `{}`, `{"a":1}`, `{"a":"` + strings.Repeat("b", 200) + `"}`, `{"a":"` + strings.Repeat("b", 16<<10) + `"}`}
		for _, text := range metadata {
			asked := question(session.ID, "question")
			if asked.Tokens = 1; text != "" {
				asked.Metadata = json.RawMessage(text)
			}
			s.end(t, s.begin(t, asked).Key, conversation.Message{Content: "yes", Tokens: 1, Status: stream.Completed})
		}
		want := s.history(t, session.ID)
		for i := range want {
			if i%2 == 0 {
				same(t, "the metadata of a message", string(want[i].Metadata), metadata[i/2])
			}
			want[i].Metadata = nil
		}
		same(t, "the history of Context", s.context(t, session.ID, 1).History, forPrompt(want))
		same(t, "the history of BeginTurn", s.begin(t, question(session.ID, "question")).History, forPrompt(want))
	}
}

// contextBounded reads the context of a session with ten questions. Each question has 1 MiB of metadata, and all messages fit
// the window. The 8 newest questions exceed conversation.HistoryBytes, so the history must begin with the oldest of these.
func contextBounded(t *testing.T, s *subject) {
	asked := plain()
	asked.Context = conversation.ContextConfig{MaxTokens: 1_000_000, CompressionEnabled: true, RetentionPolicy: conversation.FIFO}
	session := s.create(t, asked)
	turn := func() conversation.NewTurn {
		x := question(session.ID, "hello")
		x.Metadata = json.RawMessage(`{"a":"` + strings.Repeat("b", 1<<20-8) + `"}`)
		return x
	}
	for range 10 {
		s.end(t, s.begin(t, turn()).Key, answer("an answer"))
	}
	want := ids(s.history(t, session.ID)[4:])
	same(t, "the history of Context", ids(s.context(t, session.ID, 1).History), want)
	same(t, "the history of BeginTurn", ids(s.begin(t, turn()).History), want)
}

// indexOfLive reads the context of a session with a live reply. The history fits the window now, but the reply may fill the
// window later. So a priority context must have an index, because only the index has the priorities.
func indexOfLive(t *testing.T, s *subject) {
	for policy, want := range map[conversation.RetentionPolicy]int{conversation.FIFO: 0, conversation.Priority: 3, conversation.Semantic: 0} {
		session := s.create(t, choosing(policy))
		s.exchange(t, session.ID, "hello")
		same(t, "the number of indexed messages before", len(s.context(t, session.ID, 1).Index), 0)
		s.begin(t, question(session.ID, "live"))
		same(t, fmt.Sprintf("the number of indexed messages with policy %s", policy), len(s.context(t, session.ID, 1).Index), want)
	}
}

func contextOfLive(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.Semantic))
	for range 5 {
		s.exchange(t, session.ID, "hello")
	}
	begun := s.begin(t, question(session.ID, "live"))
	must(t, s.store.Journal(s.ctx, []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte("so far")}}), "Journal")
	c := s.context(t, session.ID, 10)
	last := c.History[len(c.History)-1]
	want := begun.Reply
	want.Content = "so far"
	same(t, "the live reply", last, want)
	same(t, "the number of indexed messages", len(c.Index), 11)
	same(t, "the newest indexed message", c.Index[10].ID, begun.Message.ID)
}

func indexWhereNeeded(t *testing.T, s *subject) {
	for _, test := range []struct {
		policy      conversation.RetentionPolicy
		compression bool
		tokens      int
		want        int
	}{
		{conversation.Priority, true, 93 - 23 - 4, 0}, // just fits
		{conversation.Priority, true, 93 - 23 - 3, 2},
		{conversation.Semantic, true, 93 - 23 - 3, 2},
		{conversation.FIFO, true, 93 - 23 - 3, 0},
		{conversation.Priority, false, 93 - 23 - 3, 0}, // a turn of this size would be refused
	} {
		asked := choosing(test.policy)
		asked.Context.CompressionEnabled = test.compression
		session := s.create(t, asked)
		s.exchange(t, session.ID, "hello")
		same(t, fmt.Sprintf("the number of indexed messages: %+v", test), len(s.context(t, session.ID, test.tokens).Index), test.want)
	}
}

// indexOfFIFO reads the context of a session whose history does not reach its first message, which is a system message.
func indexOfFIFO(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.FIFO))
	persona := question(session.ID, "You are a pirate.")
	persona.Role = conversation.System
	begun := s.begin(t, persona)
	s.end(t, begun.Key, answer("Aye!"))
	same(t, "the index while the history fits", s.context(t, session.ID, 1).Index, nil)
	for range 10 {
		s.exchange(t, session.ID, "hello")
	}
	want := []conversation.Indexed{{ID: begun.Message.ID, Role: conversation.System, Tokens: 10}}
	c := s.context(t, session.ID, 1)
	same(t, "the index", c.Index, want)
	same(t, "whether the history begins later", c.History[0].ID > begun.Reply.ID, true)
	next := s.begin(t, question(session.ID, "and now?"))
	same(t, "the index that a turn begins with", next.Index, want)
	s.end(t, next.Key, answer("Aye!"))
	s.clear(t, session.ID, "clears")
	same(t, "the index after a clear", s.context(t, session.ID, 1000).Index, nil)
}

func indexedMessage(t *testing.T, s *subject) {
	terms := window.TermsOf("What is a lighthouse for?", "To warn ships.")
	for _, policy := range []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy))
		var want []conversation.Indexed
		for _, turn := range []struct {
			role     conversation.Role
			metadata string
			priority float64
			reply    conversation.Message
			skip     bool
		}{
			{conversation.User, `{"priority":"high"}`, 1, conversation.Message{Content: "yes", Tokens: 7, Status: stream.Completed}, false},
			{conversation.System, `{"priority":-2.5}`, -2.5, conversation.Message{Content: "half", Tokens: 1, Status: stream.Interrupted}, false},
			{conversation.User, `{"Priority":"high"}`, 0, conversation.Message{Content: "broken", Tokens: 3, Status: stream.Failed}, true},
			{conversation.User, ``, 0, conversation.Message{Status: stream.Completed}, true},
		} {
			asked := question(session.ID, "What is a lighthouse for?")
			asked.Role, asked.Metadata = turn.role, json.RawMessage(turn.metadata)
			if turn.metadata == "" {
				asked.Metadata = nil
			}
			begun := s.begin(t, asked)
			turn.reply.Terms = terms
			ended := s.end(t, begun.Key, turn.reply)
			same(t, "the terms in the result of EndTurn", ended.Terms, nil)
			reply := conversation.Indexed{ID: ended.ID, Role: conversation.Assistant, Tokens: turn.reply.Tokens, Skip: turn.skip}
			if policy == conversation.Semantic {
				reply.Terms = terms
			}
			want = append(want, conversation.Indexed{ID: begun.Message.ID, Role: turn.role, Tokens: 10, Priority: turn.priority}, reply)
		}
		same(t, "the index", s.context(t, session.ID, 80).Index, want)
		for _, m := range s.history(t, session.ID) {
			same(t, "the terms of a message", m.Terms, nil)
		}
		s.clear(t, session.ID, "clears")
		same(t, "the index after a clear", s.context(t, session.ID, 100).Index, nil)
	}
}

func indexLimit(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.Priority))
	for i := range conversation.IndexLimit/2 + 2 {
		s.exchange(t, session.ID, fmt.Sprint(i))
	}
	all := s.history(t, session.ID)
	index := s.context(t, session.ID, 10).Index
	same(t, "the number of indexed messages", len(index), conversation.IndexLimit)
	for i, m := range all[4:] {
		if index[i].ID != m.ID {
			t.Fatalf("message %d of the index is %s, want %s", i, index[i].ID, m.ID)
		}
	}
}

// setVectors sets a vector for each reply and returns the vectors. Each vector depends on the id of its reply.
func (s *subject) setVectors(t *testing.T, sessionID string, replies ...string) (vectors []window.Vector) {
	t.Helper()
	var all []conversation.ExchangeVector
	for _, id := range replies {
		v, err := window.VectorOf("a model", []float32{1, float32(id[len(id)-1]), 0, -1})
		must(t, err, "VectorOf")
		all, vectors = append(all, conversation.ExchangeVector{Reply: id, Vector: v}), append(vectors, v)
	}
	must(t, s.store.SetVectors(s.ctx, s.owner, sessionID, all), "SetVectors")
	return vectors
}

func vectorsOfReplies(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.Semantic))
	var replies []string
	for range 3 {
		_, reply := s.exchange(t, session.ID, "hello")
		replies = append(replies, reply.ID)
	}
	before, index, history := s.session(t, session.ID), s.context(t, session.ID, 80).Index, s.history(t, session.ID)
	used, _, _ := s.used(t)
	vectors := s.setVectors(t, session.ID, replies[2], replies[0])
	want := func(what string, at int, v window.Vector) {
		t.Helper()
		index[at].Vector = v
		same(t, what, s.context(t, session.ID, 80).Index, index)
	}
	index[1].Vector = vectors[1]
	want("the index", 5, vectors[0])
	other, err := window.VectorOf("another model", []float32{5, 4})
	must(t, err, "VectorOf")
	must(t, s.store.SetVectors(s.ctx, s.owner, session.ID, []conversation.ExchangeVector{{Reply: replies[0], Vector: other}}), "SetVectors")
	want("the index after another model", 1, other)
	same(t, "the session", s.session(t, session.ID), before)
	same(t, "the history", s.history(t, session.ID), history)
	after, _, _ := s.used(t)
	sameBucket(t, "the usage", &after, &used)
	full := question(session.ID, "hello")
	full.Tokens = 80
	begun := s.begin(t, full)
	same(t, "the index that a turn begins with", begun.Index, index)
	s.end(t, begun.Key, answer("an answer"))
	s.clear(t, session.ID, "clears")
	s.setVectors(t, session.ID, replies...)
	_, reply := s.exchange(t, session.ID, "hello")
	cleared := s.context(t, session.ID, 80).Index
	same(t, "the number of indexed messages after a clear", len(cleared), 2)
	same(t, "a vector after a clear", cleared[1].Vector, nil)
	index = cleared
	want("the index of the next turn", 1, s.setVectors(t, session.ID, reply.ID)[0])
}

func vectorsOfNothing(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.Semantic))
	_, reply := s.exchange(t, session.ID, "hello")
	_, err := s.store.DeleteSession(s.ctx, s.owner, session.ID)
	must(t, err, "DeleteSession")
	s.setVectors(t, session.ID, reply.ID)
	_, err = s.store.Session(s.ctx, s.owner, session.ID)
	wantError(t, "a deleted session", err, conversation.ErrSessionNotFound)
	s.setVectors(t, "session_0000000000000000", reply.ID)
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy))
		_, reply := s.exchange(t, session.ID, "hello")
		live := s.begin(t, question(session.ID, "hello"))
		before := s.context(t, session.ID, 80)
		s.setVectors(t, session.ID, live.Reply.ID, "msg_0000000000000000")
		if policy != conversation.Semantic {
			s.setVectors(t, session.ID, reply.ID)
		}
		same(t, "the context", s.context(t, session.ID, 80), before)
		other := s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
		other.setVectors(t, session.ID, reply.ID)
		same(t, "the context after a call of another owner", s.context(t, session.ID, 80), before)
		s.end(t, live.Key, answer("an answer"))
		for _, x := range s.context(t, session.ID, 80).Index {
			same(t, "a vector", x.Vector, nil)
		}
	}
}

func messagesByID(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	others, _ := conversed(t, s, 1)
	other := s.history(t, others)[0].ID
	found, err := s.store.MessagesByID(s.ctx, s.owner, id, []string{all[4].ID, all[0].ID, other, "msg_0000000000000000", all[3].ID})
	must(t, err, "MessagesByID")
	same(t, "the messages", found, []conversation.Message{all[4], all[0], all[3]})
	found, err = s.store.MessagesByID(s.ctx, s.owner, id, nil)
	must(t, err, "MessagesByID of none")
	same(t, "the messages for no ids", found, nil)
}

func contextOfOthers(t *testing.T, s *subject) {
	id, all := conversed(t, s, 1)
	other := s.as(conversation.Owner{Account: s.owner.Account, Mode: conversation.Test})
	_, err := other.store.Context(s.ctx, other.owner, id, 1)
	wantError(t, "Context", err, conversation.ErrSessionNotFound)
	_, _, err = other.store.Summary(s.ctx, other.owner, id)
	wantError(t, "Summary", err, conversation.ErrSessionNotFound)
	_, err = other.store.MessagesByID(s.ctx, other.owner, id, ids(all))
	wantError(t, "MessagesByID", err, conversation.ErrSessionNotFound)
	wantError(t, "SaveSummary", other.store.SaveSummary(s.ctx, other.owner, id, "", summaryTo(all[1], 2), summaryUsage), conversation.ErrSessionNotFound)
}

func summaryTests() []test {
	return []test{
		{"new summary replaces the old and counts its usage", summaryReplaced},
		{"one of eight concurrent summaries is stored", summariesAtOnce},
		{"stale summary is refused", summaryStale},
		{"clear removes the summary", summaryCleared},
		{"deleted session accepts no summary", summaryOfDeleted},
		{"tokens of a summary count against the rate limit", summaryCharges},
	}
}

// summaryUsage is the usage of each summary in these tests.
var summaryUsage = conversation.Usage{Prompt: 300, Completion: 40, Total: 340}

// summaryTo returns a summary of the first count messages of a session. m is the last of these messages.
func summaryTo(m conversation.Message, count int) conversation.Summary {
	return conversation.Summary{Text: "Summary up to " + m.ID, Tokens: 9, Last: m.ID, Count: count, Replaced: 30 * count}
}

func (s *subject) saveSummary(t *testing.T, sessionID, after string, summary conversation.Summary) {
	t.Helper()
	must(t, s.store.SaveSummary(s.ctx, s.owner, sessionID, after, summary, summaryUsage), "SaveSummary")
}

func summaryReplaced(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	before, _, _ := s.used(t)
	want := s.session(t, id)
	after := ""
	for i, m := range []conversation.Message{all[1], all[3]} {
		summary := summaryTo(m, 2*i+2)
		s.saveSummary(t, id, after, summary)
		same(t, "the summary", s.context(t, id, 1).Summary, summary)
		want.TokenUsage.Prompt += 300
		want.TokenUsage.Completion += 40
		want.TokenUsage.Total += 340
		same(t, "the session", s.session(t, id), want)
		before.PromptTokens += 300
		before.CompletionTokens += 40
		used, _, _ := s.used(t)
		sameBucket(t, "the usage", &used, &before)
		after = m.ID
	}
	same(t, "the messages", s.history(t, id), all)
}

func summariesAtOnce(t *testing.T, s *subject) {
	id, all := conversed(t, s, 2)
	before := s.session(t, id).TokenUsage.Total
	const writers = 8
	errs := make(chan error, writers)
	for i := range writers {
		go func() {
			errs <- s.store.SaveSummary(s.ctx, s.owner, id, "", summaryTo(all[1+2*(i%2)], 2+2*(i%2)), summaryUsage)
		}()
	}
	first := 0
	for range writers {
		if err := <-errs; err == nil {
			first++
		} else {
			wantError(t, "SaveSummary", err, conversation.ErrStale)
		}
	}
	same(t, "the number of stored summaries", first, 1)
	same(t, "the tokens that were counted", s.session(t, id).TokenUsage.Total-before, 340)
}

func summaryStale(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	s.saveSummary(t, id, "", summaryTo(all[3], 4))
	want := s.session(t, id)
	stale := func(what, after string, last conversation.Message) {
		t.Helper()
		wantError(t, what, s.store.SaveSummary(s.ctx, s.owner, id, after, summaryTo(last, 2), summaryUsage), conversation.ErrStale)
		same(t, what+": the session", s.session(t, id), want)
	}
	stale("with no previous summary", "", all[5])
	stale("with another previous summary", all[1].ID, all[5])
	stale("a summary that ends earlier", all[3].ID, all[1])
	stale("a summary that ends at the same message", all[3].ID, all[3])
	same(t, "the summary", s.context(t, id, 1).Summary, summaryTo(all[3], 4))
	want = s.clear(t, id, "clears").Session
	stale("after a clear, with no previous summary", "", all[5])
	stale("after a clear, with the previous summary", all[3].ID, all[5])
	same(t, "the summary after a clear", s.context(t, id, 1).Summary, conversation.Summary{})
}

func summaryCleared(t *testing.T, s *subject) {
	id, all := conversed(t, s, 2)
	s.saveSummary(t, id, "", summaryTo(all[3], 4))
	s.clear(t, id, "clears")
	begun := s.begin(t, question(id, "hello"))
	same(t, "the summary", begun.Summary, conversation.Summary{})
	ended := s.end(t, begun.Key, answer("good day"))
	s.saveSummary(t, id, "", summaryTo(ended, 2))
	same(t, "the next summary", s.context(t, id, 1).Summary, summaryTo(ended, 2))
}

func summaryOfDeleted(t *testing.T, s *subject) {
	id, all := conversed(t, s, 2)
	_, err := s.store.DeleteSession(s.ctx, s.owner, id)
	must(t, err, "DeleteSession")
	before, _, _ := s.used(t)
	wantError(t, "SaveSummary", s.store.SaveSummary(s.ctx, s.owner, id, "", summaryTo(all[1], 2), summaryUsage), conversation.ErrSessionNotFound)
	after, _, _ := s.used(t)
	sameBucket(t, "the usage", &after, &before)
}

func summaryCharges(t *testing.T, s *subject) {
	p := s.key(t)
	session := s.create(t, small())
	_, reply := s.exchange(t, session.ID, "hello") // not admitted, so the turn reserves no tokens
	need := session.Window().Estimate(14 + 9 + inPrompt(10))
	figures := limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: need + 339}
	s.saveSummary(t, session.ID, "", summaryTo(reply, 2))
	ctx, _ := s.request(p, figures)
	_, err := s.store.BeginTurn(ctx, s.owner, question(session.ID, "?"))
	refused(t, "BeginTurn", err, limit.ByTokens)
	figures.TokensPerMinute++
	ctx, _ = s.request(p, figures)
	_, err = s.store.BeginTurn(ctx, s.owner, question(session.ID, "?"))
	must(t, err, "BeginTurn with room for one token more")
}
