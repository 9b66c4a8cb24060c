package storetest

import (
	"strings"
	"testing"

	"parley/conversation"
	"parley/stream"
)

func journalTests() []test {
	return []test{
		{"streaming reply shows journalled text", journalShows},
		{"overlapping text appears once", journalOverlaps},
		{"one batch adds text to many replies", journalBatch},
		{"text for an ended turn is ignored", journalEnded},
		{"empty batch has no effect", journalEmpty},
		{"long reply is read whole", journalLong},
		{"ending replaces journalled text", journalDecided},
	}
}

func segments(key conversation.TurnKey, offset int, text string) []stream.Segment[conversation.TurnKey] {
	return []stream.Segment[conversation.TurnKey]{{Key: key, Offset: offset, Text: []byte(text)}}
}

func (s *subject) journal(t *testing.T, key conversation.TurnKey, offset int, text string) {
	t.Helper()
	must(t, s.store.Journal(s.ctx, segments(key, offset, text)), "Journal")
}

// wantText checks the content of a streaming reply with each method that returns messages.
func (s *subject) wantText(t *testing.T, key conversation.TurnKey, want string) {
	t.Helper()
	m := s.message(t, key.SessionID, key.ReplyID)
	same(t, "the reply's text", m.Content, want)
	same(t, "the reply's status", m.Status, stream.Streaming)
	history := s.history(t, key.SessionID)
	same(t, "the reply in the history", history[len(history)-1], m)
}

func journalShows(t *testing.T, s *subject) {
	key := s.begin(t, question(s.create(t, plain()).ID, "hello")).Key
	s.wantText(t, key, "")
	s.journal(t, key, 0, "good ")
	s.wantText(t, key, "good ")
	s.journal(t, key, 5, "dáy\x01")
	s.wantText(t, key, "good dáy\x01")
	same(t, "tokens", s.message(t, key.SessionID, key.ReplyID).Tokens, 0)
}

func journalOverlaps(t *testing.T, s *subject) {
	const text = "a text of some characters, äöü and \U0001F600 among them"
	key := s.begin(t, question(s.create(t, plain()).ID, "hello")).Key
	for end := range text {
		for _, from := range []int{0, end / 2, end} {
			s.journal(t, key, from, text[from:end])
		}
	}
	s.journal(t, key, 0, text)
	s.journal(t, key, 0, text)
	s.journal(t, key, 3, text[3:9])
	s.wantText(t, key, text)
}

func journalBatch(t *testing.T, s *subject) {
	var keys []conversation.TurnKey
	var batch []stream.Segment[conversation.TurnKey]
	for i := range 5 {
		key := s.begin(t, question(s.create(t, plain()).ID, "hello")).Key
		keys = append(keys, key)
		batch = append(batch, segments(key, 0, strings.Repeat("x", i))...)
		batch = append(batch, segments(key, i, "and on")...)
	}
	must(t, s.store.Journal(s.ctx, batch), "Journal")
	for i, key := range keys {
		s.wantText(t, key, strings.Repeat("x", i)+"and on")
	}
}

func journalEnded(t *testing.T, s *subject) {
	session := s.create(t, plain())
	first := s.begin(t, question(session.ID, "one"))
	s.journal(t, first.Key, 0, "some")
	ended := s.end(t, first.Key, answer("something"))
	s.journal(t, first.Key, 4, "where")
	same(t, "the reply", s.message(t, session.ID, ended.ID), ended)
	second := s.begin(t, question(session.ID, "two"))
	old := segments(first.Key, 4, "where else")
	must(t, s.store.Journal(s.ctx, append(old, segments(second.Key, 0, "new")...)), "Journal")
	s.wantText(t, second.Key, "new")
	same(t, "the reply", s.message(t, session.ID, ended.ID), ended)
}

func journalEmpty(t *testing.T, s *subject) {
	must(t, s.store.Journal(s.ctx, nil), "Journal")
	key := s.begin(t, question(s.create(t, plain()).ID, "hello")).Key
	s.journal(t, key, 0, "")
	s.wantText(t, key, "")
}

func journalLong(t *testing.T, s *subject) {
	key := s.begin(t, question(s.create(t, plain()).ID, "hello")).Key
	var want strings.Builder
	for range 300 {
		piece := conversation.RandomText(400)
		s.journal(t, key, want.Len(), piece)
		want.WriteString(piece)
	}
	s.wantText(t, key, want.String())
}

func journalDecided(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	s.journal(t, begun.Key, 0, "more than what was decided")
	ended := s.end(t, begun.Key, answer("more"))
	same(t, "the text", ended.Content, "more")
	same(t, "the message", s.message(t, session.ID, ended.ID), ended)
	next := s.begin(t, question(session.ID, "and now?"))
	same(t, "the history of the next turn", forPrompt(next.History), forPrompt([]conversation.Message{begun.Message, ended}))
	s.wantText(t, next.Key, "")
}
