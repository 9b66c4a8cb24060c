package storetest

import (
	"errors"
	"fmt"
	"testing"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

func turnTests() []test {
	return []test{
		{"begin stores message and reply", beginTurn},
		{"ids and times increase", idsRise},
		{"begin returns as much history as the window holds", turnHistory},
		{"begin returns a short history whole", shortHistory},
		{"end adds usage and history tokens to the session", endTurn},
		{"end keeps id, role and time of the reply", keptIdentity},
		{"turn whose reply failed without text takes no tokens", unansweredTurns},
		{"many turns whose replies failed are not all read", manyUnanswered},
		{"failed and empty replies add no history tokens", unsentReplies},
		{"reply without usage adds no token usage", noUsage},
		{"second end is fenced", endTwice},
		{"wrong fence is refused", endFenced},
		{"end of an earlier turn is fenced", endLate},
		{"without compression, a turn that just fits begins", exactWithout},
		{"with compression, a turn that just fits begins", exactWith},
		{"full history refuses turns without compression", fullHistory},
		{"EndOrphans does not end turns of this process", noOrphans},
	}
}

func beginTurn(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	at := begun.Message.CreatedAt
	if at < session.CreatedAt {
		t.Errorf("the message is older than its session: %v, %v", at, session.CreatedAt)
	}
	for _, id := range []string{begun.Message.ID, begun.Reply.ID} {
		if !conversation.ValidID(conversation.MessagePrefix, id) {
			t.Errorf("message id %q is not valid", id)
		}
	}
	want := conversation.TurnStart{
		Message: conversation.Message{
			ID: begun.Message.ID, SessionID: session.ID, Role: conversation.User, Content: "hello", Tokens: 10,
			CreatedAt: at, Status: stream.Completed,
		},
		Reply: conversation.Message{
			ID: begun.Reply.ID, SessionID: session.ID, Role: conversation.Assistant, CreatedAt: at, Status: stream.Streaming,
		},
		Session: session,
		Key: conversation.TurnKey{
			Owner: s.owner, SessionID: session.ID, ReplyID: begun.Reply.ID, Fence: session.Fence + 1,
		},
	}
	want.Session.MessageCount, want.Session.LastActivity, want.Session.HistoryTokens = 2, at, inPrompt(10)
	want.Session.Head, want.Session.LiveReply, want.Session.LiveMessage = begun.Reply.ID, begun.Reply.ID, begun.Message.ID
	want.Session.Fence = session.Fence + 1
	same(t, "the result of BeginTurn", begun, want)
	same(t, "the session", s.session(t, session.ID), want.Session)
	same(t, "the messages", s.history(t, session.ID), []conversation.Message{want.Message, want.Reply})
}

func idsRise(t *testing.T, s *subject) {
	session := s.create(t, plain())
	last := conversation.Message{}
	for i := range 20 {
		begun := s.begin(t, question(session.ID, fmt.Sprint(i)))
		same(t, "Previous", begun.Previous, last.ID)
		for _, m := range []conversation.Message{begun.Message, begun.Reply} {
			if m.ID <= last.ID || m.CreatedAt < last.CreatedAt {
				t.Fatalf("message %s of %v must come after message %s of %v", m.ID, m.CreatedAt, last.ID, last.CreatedAt)
			}
			last = m
		}
		if begun.Session.LastActivity != begun.Message.CreatedAt {
			t.Errorf("last activity %v, want %v", begun.Session.LastActivity, begun.Message.CreatedAt)
		}
		s.end(t, begun.Key, answer("yes"))
		same(t, "last activity at the end", s.session(t, session.ID).LastActivity, begun.Message.CreatedAt)
	}
}

func turnHistory(t *testing.T, s *subject) {
	// Exactly 6 turns and a reply fit into the budget of 147 tokens, if no reply fails.
	for _, failing := range []bool{true, false} {
		session := plain()
		session.Context = conversation.ContextConfig{MaxTokens: 200, CompressionEnabled: true, RetentionPolicy: conversation.FIFO}
		id := s.create(t, session).ID
		var all []conversation.Message
		for i := range 10 {
			begun := s.begin(t, question(id, fmt.Sprint(i)))
			want, left := len(all), window.Size{MaxTokens: 200}.Budget()
			for want > 0 && left >= 0 {
				want--
				if m := all[want]; m.Status == stream.Failed {
					left -= window.MessageOverhead
				} else {
					left -= inPrompt(m.Tokens)
				}
			}
			same(t, fmt.Sprintf("the history of turn %d", i), begun.History, forPrompt(all[want:]))
			reply := answer("yes")
			if failing && i%4 == 1 {
				reply.Status = stream.Failed
			}
			all = append(all, begun.Message, s.end(t, begun.Key, reply))
		}
	}
}

func shortHistory(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	same(t, "the history", s.begin(t, question(id, "and now?")).History, forPrompt(all))
}

func endTurn(t *testing.T, s *subject) {
	for _, state := range []stream.State{stream.Completed, stream.Cancelled, stream.Failed, stream.Interrupted} {
		session := s.create(t, plain())
		first := s.begin(t, question(session.ID, "hello"))
		reply := answer("good day")
		reply.Status = state
		ended := s.end(t, first.Key, reply)
		want := first.Session
		want.LiveReply, want.LiveMessage = "", ""
		want.TokenUsage = conversation.TokenUsage{Prompt: 17, Completion: 5, Total: 22}
		if state != stream.Failed {
			want.HistoryTokens += inPrompt(5)
		}
		same(t, "the session after "+string(state), s.session(t, session.ID), want)
		same(t, "the reply", s.message(t, session.ID, ended.ID), ended)

		second := s.begin(t, question(session.ID, "and again"))
		s.end(t, second.Key, reply)
		same(t, "the usage of two turns", s.session(t, session.ID).TokenUsage,
			conversation.TokenUsage{Prompt: 34, Completion: 10, Total: 44})
		same(t, "the messages of two turns", s.session(t, session.ID).MessageCount, 4)
	}
}

func keptIdentity(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	reply := answer("it's me")
	reply.ID, reply.SessionID, reply.Role, reply.CreatedAt = "msg_x", "session_x", conversation.User, 1
	ended := s.end(t, begun.Key, reply)
	want := reply
	want.ID, want.SessionID, want.Role, want.CreatedAt = begun.Reply.ID, session.ID, conversation.Assistant, begun.Reply.CreatedAt
	same(t, "the result of EndTurn", ended, want)
	same(t, "the messages", s.history(t, session.ID), []conversation.Message{begun.Message, want})
}

// unansweredTurns ends turns with replies that failed without text. Later prompts leave out both messages of such a turn, so it must
// not count in the tokens of the history. The history itself keeps both messages.
func unansweredTurns(t *testing.T, s *subject) {
	for _, policy := range []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy)) // five turns of 23 tokens do not fit
		want := make([]conversation.Message, 0, 14)
		keep := func(asked, reply conversation.Message) { want = append(want, asked, reply) }
		keep(s.exchange(t, session.ID, "hello"))
		for range 5 {
			begun := s.begin(t, question(session.ID, "is anybody there?"))
			keep(begun.Message, s.end(t, begun.Key, conversation.Message{
				Status: stream.Failed, Error: &conversation.ReplyError{Code: "provider_error", Message: "it broke"},
			}))
			same(t, "the history's tokens", s.session(t, session.ID).HistoryTokens, inPrompt(10)+inPrompt(5))
		}
		keep(s.exchange(t, session.ID, "hello again"))
		same(t, "the messages", s.history(t, session.ID), want)
		c := s.context(t, session.ID, 10)
		same(t, "the history of the context", c.History, forPrompt(want))
		same(t, "the sum of the tokens", conversation.TokensInPrompts(c.History), c.Session.HistoryTokens)
		same(t, "the index while all fits", len(c.Index), 0)
		if policy == conversation.FIFO {
			continue
		}
		for i, x := range s.context(t, session.ID, 90).Index {
			same(t, "whether the index has an unanswered turn", x.Unanswered, i > 2 && i < 12 && i%2 == 1)
		}
	}
}

// manyUnanswered ends many turns with replies that failed without text. Reading a context must not read all of them.
func manyUnanswered(t *testing.T, s *subject) {
	session := s.create(t, choosing(conversation.FIFO))
	for range 30 {
		s.end(t, s.begin(t, question(session.ID, "is anybody there?")).Key, conversation.Message{
			Status: stream.Failed, Error: &conversation.ReplyError{Code: "provider_error", Message: "it broke"},
		})
	}
	c := s.context(t, session.ID, 10)
	same(t, "the size of the history", len(c.History), session.Window().Budget()/window.MessageOverhead+1)
}

func unsentReplies(t *testing.T, s *subject) {
	for _, reply := range []conversation.Message{
		{Content: "half of", Tokens: 2, Status: stream.Failed},
		{Status: stream.Cancelled}, {Status: stream.Interrupted}, {Status: stream.Completed},
	} {
		session := s.create(t, plain())
		begun := s.begin(t, question(session.ID, "hello"))
		s.end(t, begun.Key, reply)
		same(t, "the history's tokens after "+string(reply.Status), s.session(t, session.ID).HistoryTokens, inPrompt(10))
		same(t, "the messages", s.session(t, session.ID).MessageCount, 2)
	}
}

func noUsage(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	s.end(t, begun.Key, conversation.Message{Content: "x", Tokens: 1, Status: stream.Completed})
	same(t, "the usage", s.session(t, session.ID).TokenUsage, conversation.TokenUsage{})
}

func endTwice(t *testing.T, s *subject) {
	for _, state := range []stream.State{stream.Completed, stream.Cancelled, stream.Failed, stream.Interrupted} {
		session := s.create(t, plain())
		begun := s.begin(t, question(session.ID, "hello"))
		first := answer("the first")
		first.Status = state
		decided := s.end(t, begun.Key, first)
		before := s.session(t, session.ID)
		again, err := s.store.EndTurn(s.ctx, begun.Key, answer("the second"), timing)
		wantError(t, "the second EndTurn", err, conversation.ErrFenced)
		same(t, "the result of EndTurn", again, decided)
		same(t, "the session", s.session(t, session.ID), before)
		same(t, "the reply", s.message(t, session.ID, decided.ID), decided)
	}
}

func endFenced(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	for _, fence := range []int64{0, begun.Key.Fence - 1, begun.Key.Fence + 1} {
		key := begun.Key
		key.Fence = fence
		_, err := s.store.EndTurn(s.ctx, key, answer("forged"), timing)
		wantError(t, "EndTurn", err, conversation.ErrFenced)
		must(t, s.store.Journal(s.ctx, segments(key, 0, "forged")), "Journal")
	}
	same(t, "the session", s.session(t, session.ID), begun.Session)
	same(t, "the reply", s.message(t, session.ID, begun.Reply.ID), begun.Reply)
	s.end(t, begun.Key, answer("right"))
}

func endLate(t *testing.T, s *subject) {
	session := s.create(t, plain())
	first := s.begin(t, question(session.ID, "one"))
	decided := s.end(t, first.Key, answer("first"))
	second := s.begin(t, question(session.ID, "two"))
	if second.Key.Fence <= first.Key.Fence {
		t.Errorf("the second turn has the fence %d, want more than %d", second.Key.Fence, first.Key.Fence)
	}
	again, err := s.store.EndTurn(s.ctx, first.Key, answer("late"), timing)
	wantError(t, "EndTurn of the previous turn", err, conversation.ErrFenced)
	same(t, "the result of EndTurn", again, decided)
	same(t, "the session", s.session(t, session.ID), second.Session)
}

// overflows checks that a turn is refused because of the window, and that the refusal changes nothing.
func (s *subject) overflows(t *testing.T, sessionID string, tokens int) {
	t.Helper()
	session, history := s.session(t, sessionID), s.history(t, sessionID)
	config := session.Context
	turn := question(sessionID, "too much")
	turn.Tokens = tokens
	begun, err := s.store.BeginTurn(s.ctx, s.owner, turn)
	var overflow *conversation.OverflowError
	if !errors.As(err, &overflow) {
		t.Fatalf("a turn of %d tokens: error %v, want an overflow", tokens, err)
	}
	current, _ := session.Window().Check(config.CompressionEnabled, session.HistoryTokens, inPrompt(tokens))
	same(t, "the overflow", *overflow, conversation.OverflowError{CurrentTokens: current, MaxTokens: config.MaxTokens})
	same(t, "the result of BeginTurn", begun, conversation.TurnStart{})
	same(t, "the session", s.session(t, sessionID), session)
	same(t, "the messages", s.history(t, sessionID), history)
}

func exactWithout(t *testing.T, s *subject) {
	session := plain()
	session.Context = conversation.ContextConfig{MaxTokens: 100, RetentionPolicy: conversation.FIFO}
	id := s.create(t, session).ID
	s.exchange(t, id, "hello")
	fits := window.Size{MaxTokens: 100}.Budget() - inPrompt(10) - inPrompt(5) - window.MessageOverhead
	s.overflows(t, id, fits+1)
	turn := question(id, "just so")
	turn.Tokens = fits
	begun := s.begin(t, turn)
	same(t, "the history's tokens", begun.Session.HistoryTokens, window.Size{MaxTokens: 100}.Budget())
	s.end(t, begun.Key, conversation.Message{Status: stream.Cancelled})
	s.overflows(t, id, 0)
}

func exactWith(t *testing.T, s *subject) {
	session := plain()
	session.Context = conversation.ContextConfig{MaxTokens: 100, CompressionEnabled: true, RetentionPolicy: conversation.FIFO}
	id := s.create(t, session).ID
	s.exchange(t, id, "hello")
	fits := window.Size{MaxTokens: 100}.Budget() - window.MessageOverhead
	s.overflows(t, id, fits+1)
	turn := question(id, "just so")
	turn.Tokens = fits
	s.end(t, s.begin(t, turn).Key, answer("yes"))
	s.end(t, s.begin(t, turn).Key, answer("and again"))
}

func fullHistory(t *testing.T, s *subject) {
	for _, compression := range []bool{false, true} {
		session := plain()
		session.Context = conversation.ContextConfig{MaxTokens: 64, CompressionEnabled: compression, RetentionPolicy: conversation.FIFO}
		id := s.create(t, session).ID
		begun := s.begin(t, question(id, "hello"))
		long := answer("a long one")
		long.Tokens = 1000 // a model may exceed its reply room
		s.end(t, begun.Key, long)
		if compression {
			s.begin(t, question(id, "go on"))
		} else {
			s.overflows(t, id, 1)
		}
	}
}

func noOrphans(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	n, err := s.store.EndOrphans(s.ctx, func(string) int { return 1 })
	must(t, err, "EndOrphans")
	same(t, "the number of orphans", n, 0)
	same(t, "the session", s.session(t, session.ID), begun.Session)
	s.end(t, begun.Key, answer("here I am"))
}
