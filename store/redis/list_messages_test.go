package redis

import (
	"strconv"
	"testing"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// TestMessages_SessionFitsPage_OneZRANGE counts the ZRANGE commands of a page that has more messages than historyFirstRead.
func TestMessages_SessionFitsPage_OneZRANGE(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	s, owner := open(t, server.URL), newOwner()
	session := newSession(t, s, owner)
	for range historyFirstRead {
		begun, err := s.BeginTurn(t.Context(), owner, aTurn(session.ID, "hello"))
		must(t, err)
		_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
		must(t, err)
	}
	for _, test := range []struct {
		bytes   string // of the session; "" if an earlier version has created it
		zranges int
	}{{"0", 1}, {strconv.Itoa(conversation.PageBytes), 1}, {strconv.Itoa(conversation.PageBytes + 1), 2}, {"", 2}} {
		key := sessionKey(tagOfOwner(owner), session.ID)
		must(t, s.db.HSet(t.Context(), key, "bytes", test.bytes).Err())
		for _, ascending := range []bool{false, true} {
			calls, _ := commands(t, server, func() {
				page, err := s.Messages(t.Context(), owner, session.ID, conversation.MessageQuery{Limit: historyFirstRead + 1, Ascending: ascending})
				must(t, err)
				same(t, "messages", len(page.Messages), historyFirstRead+1)
			})
			if calls["zrange"] != test.zranges {
				t.Errorf("a session of %q bytes, ascending %v: %d ZRANGE commands, want %d", test.bytes, ascending, calls["zrange"], test.zranges)
			}
		}
	}
}
