package redis

import (
	"strings"
	"testing"

	"parley/conversation"
)

var testBegin = compile("test_begin", `
local s = {id = ARGV[1], user = 'user_0123456789abcdef', created = now, expires = now + 86400000, last = now, count = 2, prompt = 0,
  completion = 0, total = 0, window = 4096, compress = '1', policy = 'fifo', htokens = 14, fence = 1, asked = ARGV[3],
  live = ARGV[4], head = ARGV[4], node = ARGV[2], waiter = ARGV[5]}
session_save(s, unpack(FIELDS))
redis.call('PEXPIREAT', session_key(s.id), int(s.expires))
redis.call('SET', journal_key(s.id, 1), '', 'PXAT', int(s.expires))
turn_keep(s, 0, 0, 17)
return 1
`, sessions)

// liveTurn begins a turn in a new session.
func liveTurn(t testing.TB, s *Store, owner conversation.Owner) conversation.TurnKey {
	t.Helper()
	tag, id, waiter := conversationTag(owner), "session_"+conversation.RandomText(16), conversation.RandomText(16)
	key := conversation.TurnKey{Owner: owner, SessionID: id, MessageID: "msg_1" + conversation.RandomText(15), Fence: 1}
	if err := s.db.SAdd(t.Context(), liveKey(s.node.id), liveMember(tag, id, waiter)).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := s.run(t.Context(), testBegin, tag, []string{sessionKey(tag, id)}, id, s.node.id, "msg_0"+conversation.RandomText(15), key.MessageID, waiter)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// wantInterrupted checks how a turn ended.
func wantInterrupted(t *testing.T, s *Store, key conversation.TurnKey, text string) {
	t.Helper()
	all, err := s.db.ZRange(t.Context(), conversationTag(key.Owner)+":m:"+key.SessionID, 0, -1).Result()
	must(t, err)
	if len(all) != 1 || !strings.Contains(all[0], `"content":"`+text+`"`) || !strings.Contains(all[0], `"interrupted"`) {
		t.Errorf("the reply is %q", all)
	}
}
