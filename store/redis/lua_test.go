package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/conversation/window"
)

// What Lua does as Go does elsewhere is held to that here.

// evaluate runs text after the libraries of a script, with the tag of a new account.
func evaluate(t *testing.T, s *Store, text string, args ...any) any {
	t.Helper()
	libraries := "#!lua\n" + source("window") + source("usage") + source("session") + source("queue") + source("turn")
	sc := &script{name: "test", text: libraries + text, digest: strings.Repeat("0", 40)} // no server knows it: it is sent as text
	reply, err := s.once(t.Context(), sc, []string{sessionsKey(tagOfOwner(newOwner()))}, nil, args)
	must(t, err)
	return reply
}

func TestIdsInLuaAreThoseOfGo(t *testing.T) {
	s := newStore(t)
	const random = "abcdefghi"
	last := ""
	for i := range 200 {
		at := conversation.Time(1_700_000_000_000 + rand.Int64N(100))
		if i%20 == 0 {
			at = conversation.Time(rand.Int64N(62 * 62 * 62 * 62 * 62 * 62))
			last = ""
		}
		want := conversation.NewID(conversation.MessagePrefix, at, last)
		got := text(evaluate(t, s, "return new_id(ARGV[1], tonumber(ARGV[2]), ARGV[3] ~= '' and ARGV[3] or nil, ARGV[4])",
			conversation.MessagePrefix, int64(at), last, random))
		if clock := want[:len(want)-randomLength]; got != clock+random {
			t.Fatalf("an id of %d after %q: Lua says %q, Go %q", at, last, got, clock+random)
		}
		last = got
	}
}

func TestTheWindowInLuaIsThatOfGo(t *testing.T) {
	s := newStore(t)
	for _, maxTokens := range []int{64, 65, 66, 67, 100, 777, 4096, 16383, 16384, 16385, 1_000_000} {
		got := evaluate(t, s, "local w = tonumber(ARGV[1]) return {room(w), budget(w)}", maxTokens)
		want := []any{int64(window.ReplyRoom(maxTokens)), int64(window.Budget(maxTokens))}
		same(t, fmt.Sprintf("room and budget of %d", maxTokens), got, any(want))
	}
}

func TestConstantsInLuaAreThoseOfGo(t *testing.T) {
	got := evaluate(t, newStore(t), "return {MESSAGE_OVERHEAD, PROMPT_OVERHEAD, INDEX_LIMIT, PLACES, SESSION_TIME, REQUESTS, KEPT_DAYS * 24, FIELDS_AN_HOUR}")
	field := func(b usage.Bucket) int64 {
		for f := range b.All() {
			return int64(f)
		}
		return 0
	}
	same(t, "the constants", got, any([]any{
		int64(window.MessageOverhead), int64(window.PromptOverhead), int64(conversation.IndexLimit), int64(conversation.QueuePlaces),
		field(usage.Bucket{SessionTime: 1}), field(usage.Bucket{Requests: 1}), int64(usage.RetentionHours), int64(fieldsAnHour),
	}))
}

func TestARecordReadsBackAsItWasWritten(t *testing.T) {
	m := conversation.Message{
		ID: "msg_0123456789ABCDEF", SessionID: "session_0123456789ABCDEF", Role: conversation.Assistant, Content: "ä\x00\n", Tokens: 1 << 40,
		CreatedAt: 1_700_000_000_000, Metadata: []byte(`{"a":1}`), Status: "failed", FinishReason: "length",
		Usage: &conversation.Usage{Prompt: 1, Completion: 200, Total: -3, Estimated: true},
		Context: &conversation.ContextReport{
			Policy: conversation.FIFO, PromptTokens: 9, MaxTokens: 4096, Kept: conversation.MessageRange{Count: 1, First: "a", Last: "b"},
			Dropped: conversation.MessageRange{Count: 300}, InSummary: conversation.MessageRange{Count: 7, Last: "c"},
			Skipped: conversation.MessageRange{Count: 2, First: "d"}, Summarised: true, SummaryFault: conversation.SummaryLate,
			Similarity: conversation.ByEmbeddings,
		},
		Error: &conversation.ReplyError{Code: "provider_error", Message: "it broke"},
	}
	record := string(appendMessage(nil, &m))
	member := text(evaluate(t, newStore(t), "return member_of(ARGV[1], 7, tonumber(ARGV[2]), ARGV[3])", m.ID, int64(m.CreatedAt), record))
	got, err := readMember(m.SessionID, member)
	must(t, err)
	same(t, "the message", got, m)
	for n := range len(member) { // cut short anywhere, it is malformed
		if _, err := readMember(m.SessionID, member[:n]); err == nil {
			t.Errorf("of %d bytes, %d are read as a message", len(member), n)
		}
	}
}
