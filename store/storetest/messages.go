package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"parley/conversation"
	"parley/stream"
)

func messageTests() []test {
	return []test{
		{"new session has no messages", noMessages},
		{"messages are read back as written", messagesReadBack},
		{"pages, newest first, contain all messages", pagesDown},
		{"pages, oldest first, contain all messages", pagesUp},
		{"page begins at a message or after it", pageFrom},
		{"page ends before the message that exceeds the bound in bytes", pagesBounded},
		{"page from an unknown id begins at the next message", pageFromNowhere},
		{"messages and session of a page are consistent", pageWithSession},
		{"unknown message is not found", unknownMessage},
	}
}

func noMessages(t *testing.T, s *subject) {
	session := s.create(t, plain())
	for _, ascending := range []bool{true, false} {
		page, err := s.store.Messages(s.ctx, s.owner, session.ID, conversation.MessageQuery{Ascending: ascending, Limit: 5})
		must(t, err, "Messages")
		same(t, "the page", page, conversation.MessagePage{Session: session})
	}
}

func messagesReadBack(t *testing.T, s *subject) {
	session := s.create(t, plain())
	turn := question(session.ID, "zwölf & <drei> \U0001F600\u2028\x01")
	turn.Role, turn.Metadata = conversation.System, json.RawMessage(`{"priority":"high","<":[1.50]}`)
	begun := s.begin(t, turn)
	reply := conversation.Message{
		Content: "ä<b>\n", Tokens: 7, Status: stream.Failed, FinishReason: "content_filter",
		Usage: &conversation.Usage{Prompt: 1, Completion: 2, Total: 3, Estimated: true},
		Context: &conversation.ContextReport{
			Policy: conversation.FIFO, PromptTokens: 9, MaxTokens: 4096,
			Kept:    conversation.MessageRange{Count: 1, First: begun.Message.ID, Last: begun.Message.ID},
			Dropped: conversation.MessageRange{Count: 3, Last: "msg_0000000000000000"},
		},
		Error: &conversation.ReplyError{Code: "provider_error", Message: "it broke"},
	}
	ended := s.end(t, begun.Key, reply)
	want := reply
	want.ID, want.SessionID, want.Role, want.CreatedAt = begun.Reply.ID, session.ID, conversation.Assistant, begun.Reply.CreatedAt
	same(t, "the result of EndTurn", ended, want)
	same(t, "the messages", s.history(t, session.ID), []conversation.Message{begun.Message, want})
	same(t, "the message", s.message(t, session.ID, begun.Message.ID), begun.Message)
	same(t, "the reply", s.message(t, session.ID, begun.Reply.ID), want)
}

// conversed creates a session with the given number of turns. It returns the session's id and its messages, oldest first.
func conversed(t *testing.T, s *subject, exchanges int) (string, []conversation.Message) {
	t.Helper()
	session := s.create(t, plain())
	// The sessions before and after are for tests that read pages: a page must not contain their messages.
	before, after := s.create(t, plain()), s.create(t, plain())
	s.exchange(t, before.ID, "before")
	var all []conversation.Message
	for i := range exchanges {
		asked, reply := s.exchange(t, session.ID, string(rune('a'+i)))
		all = append(all, asked, reply)
	}
	s.exchange(t, after.ID, "after")
	if !slices.IsSortedFunc(all, func(a, b conversation.Message) int { return compare(a.ID, b.ID) }) {
		t.Error("the ids of the messages do not increase")
	}
	return session.ID, all
}

// walk reads all messages of a session page by page.
func (s *subject) walk(t *testing.T, sessionID string, query conversation.MessageQuery) []conversation.Message {
	t.Helper()
	var all []conversation.Message
	for range 100 {
		page, err := s.store.Messages(s.ctx, s.owner, sessionID, query)
		must(t, err, "Messages")
		all = append(all, page.Messages...)
		if !page.More {
			return all
		}
		if len(page.Messages) != query.Limit {
			t.Fatalf("More is true, but the page has only %d of %d messages", len(page.Messages), query.Limit)
		}
		query.From = page.Messages[len(page.Messages)-1].ID
	}
	t.Fatal("the pages do not end")
	return nil
}

func reversed(messages []conversation.Message) []conversation.Message {
	messages = slices.Clone(messages)
	slices.Reverse(messages)
	return messages
}

func pagesDown(t *testing.T, s *subject) {
	id, all := conversed(t, s, 9)
	for _, limit := range []int{1, 3, 15, 16, 17, 18, 19, 100} { // the script on Redis reads 16 messages at once
		same(t, "all pages", s.walk(t, id, conversation.MessageQuery{Limit: limit}), reversed(all))
	}
}

func pagesUp(t *testing.T, s *subject) {
	id, all := conversed(t, s, 9)
	for _, limit := range []int{1, 3, 15, 16, 17, 18, 19, 100} { // the script on Redis reads 16 messages at once
		same(t, "all pages", s.walk(t, id, conversation.MessageQuery{Ascending: true, Limit: limit}), all)
	}
}

func pageFrom(t *testing.T, s *subject) {
	id, all := conversed(t, s, 3)
	last := len(all) - 1
	for i, m := range all {
		for _, c := range []struct {
			name  string
			query conversation.MessageQuery
			want  []conversation.Message
		}{
			{"ascending", conversation.MessageQuery{Ascending: true}, all[i+1:]},
			{"ascending, inclusive", conversation.MessageQuery{Ascending: true, Inclusive: true}, all[i:]},
			{"descending", conversation.MessageQuery{}, reversed(all[:i])},
			{"descending, inclusive", conversation.MessageQuery{Inclusive: true}, reversed(all[:i+1])},
		} {
			c.query.From, c.query.Limit = m.ID, last+1
			page, err := s.store.Messages(s.ctx, s.owner, id, c.query)
			must(t, err, "Messages")
			same(t, c.name, ids(page.Messages), ids(c.want))
			if page.More {
				t.Errorf("%s: the page has all messages, but More is true", c.name)
			}
			if c.query.Limit = 1; len(c.want) > 0 {
				page, err := s.store.Messages(s.ctx, s.owner, id, c.query)
				must(t, err, "Messages")
				same(t, c.name+", limit 1", ids(page.Messages), ids(c.want[:1]))
				same(t, c.name+", limit 1: More", page.More, len(c.want) > 1)
			}
		}
	}
	for _, ascending := range []bool{true, false} {
		page, err := s.store.Messages(s.ctx, s.owner, id, conversation.MessageQuery{Ascending: ascending, Inclusive: true, Limit: 1})
		must(t, err, "Messages")
		want := all[last]
		if ascending {
			want = all[0]
		}
		same(t, "from the end, inclusive", ids(page.Messages), []string{want.ID})
	}
}

// pagesBounded reads pages of a session with replies of about a third of conversation.PageBytes, a reply that is larger than the
// bound, and a live reply.
func pagesBounded(t *testing.T, s *subject) {
	session := s.create(t, plain())
	third := strings.Repeat("a", conversation.PageBytes/3-1000)
	for _, content := range []string{third, third, third, third, third + third + third + third, "short"} {
		s.end(t, s.begin(t, question(session.ID, "hello")).Key, answer(content))
	}
	begun := s.begin(t, question(session.ID, "live"))
	must(t, s.store.Journal(s.ctx, []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte(third)}}), "Journal")
	for _, c := range []struct {
		ascending bool
		want      []int // the numbers of messages on the pages
	}{
		{true, []int{7, 2, 1, 4}},  // 3 turns and a question; a reply and a question; the large reply; the short and the live turn
		{false, []int{4, 1, 7, 2}}, // the live and the short turn; the large reply; a question and 3 turns; a turn
	} {
		query := conversation.MessageQuery{Ascending: c.ascending, Limit: 100}
		var sizes []int
		var all []string
		for more := true; more; {
			page, err := s.store.Messages(s.ctx, s.owner, session.ID, query)
			must(t, err, "Messages")
			sizes, all, more = append(sizes, len(page.Messages)), append(all, ids(page.Messages)...), page.More
			query.From = all[len(all)-1]
		}
		same(t, fmt.Sprintf("the sizes of the pages, ascending %v", c.ascending), sizes, c.want)
		slices.Sort(all)
		same(t, "the number of different messages", len(slices.Compact(all)), 14)
	}
}

func pageFromNowhere(t *testing.T, s *subject) {
	id, all := conversed(t, s, 2)
	for _, inclusive := range []bool{true, false} {
		for i, m := range all {
			after := m.ID + "0" // sorts after m, before the next
			query := conversation.MessageQuery{From: after, Inclusive: inclusive, Limit: 10}
			page, err := s.store.Messages(s.ctx, s.owner, id, query)
			must(t, err, "Messages")
			same(t, "descending", ids(page.Messages), ids(reversed(all[:i+1])))
			query.Ascending = true
			page, err = s.store.Messages(s.ctx, s.owner, id, query)
			must(t, err, "Messages")
			same(t, "ascending", ids(page.Messages), ids(all[i+1:]))
		}
		for from, want := range map[string][]conversation.Message{"msg_0000000000000000": all, "msg_zzzzzzzzzzzzzzzz": nil} {
			page, err := s.store.Messages(s.ctx, s.owner, id, conversation.MessageQuery{
				From: from, Inclusive: inclusive, Ascending: true, Limit: 10,
			})
			must(t, err, "Messages")
			same(t, "ascending from "+from, ids(page.Messages), ids(want))
		}
	}
}

func pageWithSession(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	page, err := s.store.Messages(s.ctx, s.owner, session.ID, conversation.MessageQuery{Limit: 1})
	must(t, err, "Messages")
	same(t, "the page", page, conversation.MessagePage{
		Session: begun.Session, Messages: []conversation.Message{begun.Reply}, More: true,
	})
}

func unknownMessage(t *testing.T, s *subject) {
	id, all := conversed(t, s, 1)
	for _, message := range []string{"msg_0000000000000000", "", all[0].ID[:10], all[0].ID + "0", id} {
		_, err := s.store.Message(s.ctx, s.owner, id, message)
		wantError(t, "Message "+message, err, conversation.ErrMessageNotFound)
	}
	other := s.create(t, plain())
	_, err := s.store.Message(s.ctx, s.owner, other.ID, all[0].ID)
	wantError(t, "Message of another session", err, conversation.ErrMessageNotFound)
}
