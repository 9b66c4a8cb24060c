package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
)

// These tests compare Lua functions with the Go functions that do the same.

// evaluate runs an operation, which is Lua code, with the tag of a new account. It returns the operation's result.
func evaluate(t *testing.T, s *Store, operation string, args ...any) any {
	t.Helper()
	sc := unknownScript("test", compile(operation, 0).text)
	reply, err := s.send(t.Context(), sc, []string{sessionsKey(tagOfOwner(newOwner()))}, nil, args)
	must(t, err)
	return reply
}

func TestLua_IDs_SameAsGo(t *testing.T) {
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
			t.Fatalf("an id of %d after %q: Lua returns %q, Go %q", at, last, got, clock+random)
		}
		last = got
	}
}

func TestLua_ReplyRoomAndBudget_SameAsGo(t *testing.T) {
	s := newStore(t)
	var sizes []window.Size
	for _, maxTokens := range []int{64, 65, 66, 67, 100, 777, 4096, 16383, 16384, 16385, 1_000_000} {
		sizes = append(sizes, window.Size{MaxTokens: maxTokens}, window.Size{MaxTokens: maxTokens, Instructions: 20},
			window.Size{MaxTokens: maxTokens, Reply: 20}, window.Size{MaxTokens: maxTokens, Reply: maxTokens, Instructions: 20})
	}
	for _, size := range sizes {
		got := evaluate(t, s, "local n = tonumber "+
			"local s = {window = n(ARGV[1]), reply = n(ARGV[2]) > 0 and n(ARGV[2]) or nil, fixed = n(ARGV[3])} "+
			"return {reply_room(s), overhead(s), budget(s)}", size.MaxTokens, size.Reply, size.Instructions)
		want := []any{int64(size.ReplyRoom()), int64(size.Prompt(0)), int64(size.Budget())}
		same(t, fmt.Sprintf("reply room, overhead and budget of %+v", size), got, any(want))
	}
}

// TestLua_WithoutMetadata_OtherFieldsStay has texts whose lengths take one, two and three bytes in a record.
func TestLua_WithoutMetadata_OtherFieldsStay(t *testing.T) {
	s := newStore(t)
	cut := func(member string) string { return text(evaluate(t, s, "return without_metadata(ARGV[1])", member)) }
	for _, n := range []int{0, 1, 127, 128, 16383, 16384, 40_000} {
		m := conversation.Message{
			ID: "msg_0123456789ABCDEF", SessionID: "session_0123456789ABCDEF", Role: conversation.User, Status: "completed",
			Content: strings.Repeat("c", n), Tokens: n, Usage: &conversation.Usage{Prompt: 1, Completion: 2, Total: 3},
		}
		member := func() string {
			return m.ID + strings.Repeat("\x00", headLength-idLength) + string(record.AppendMessage(nil, &m))
		}
		bare := member()
		same(t, fmt.Sprintf("a member of %d bytes without metadata", n), cut(bare), bare)
		for _, k := range []int{1, 127, 128, 16383, 16384} {
			m.Metadata = []byte(strings.Repeat("m", k))
			same(t, fmt.Sprintf("a member of %d bytes with metadata of %d bytes", n, k), cut(member()), bare)
		}
	}
	later := strings.Repeat("x", headLength) + "\x02a later version"
	same(t, "a member of a later version", cut(later), later)
}

func TestLua_Member_ReadByGo(t *testing.T) {
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
	written := string(record.AppendMessage(nil, &m))
	member := text(evaluate(t, newStore(t), "return member_of(ARGV[1], 7, tonumber(ARGV[2]), ARGV[3])", m.ID, int64(m.CreatedAt), written))
	got, err := readMember(m.SessionID, member)
	must(t, err)
	same(t, "the message", got, m)
	for n := range len(member) { // a member without its last bytes is malformed
		if _, err := readMember(m.SessionID, member[:n]); err == nil {
			t.Errorf("readMember accepts a member that ends after %d of %d bytes", n, len(member))
		}
	}
}

// TestLua_SessionView_ReadByGo reads the view of a session in which all fields differ. A view that ends early or late is malformed.
func TestLua_SessionView_ReadByGo(t *testing.T) {
	const operation = `local s = {user = 'user_0123456789abcdef', created = 1, expires = 2 ^ 41, last = 3, count = 4, prompt = 5,
		completion = 6, total = MAX_EXACT, meta = '{"a":1}', window = 8, compress = '1', policy = 'semantic', htokens = 9, head = 'h',
		cleared = 'c', live = 'l', asked = 'a', fence = 10}
		if ARGV[1] ~= '' then s.meta, s.head, s.cleared, s.live, s.asked, s.compress = nil, nil, nil, nil, nil, '' end
		return session_view(s)`
	want := conversation.Session{
		ID: "id", UserID: "user_0123456789abcdef", CreatedAt: 1, ExpiresAt: 1 << 41, LastActivity: 3, MessageCount: 4,
		TokenUsage: conversation.TokenUsage{Prompt: 5, Completion: 6, Total: maxExact}, Metadata: []byte(`{"a":1}`),
		Context:       conversation.ContextConfig{MaxTokens: 8, CompressionEnabled: true, RetentionPolicy: conversation.Semantic},
		HistoryTokens: 9, Head: "h", Cleared: "c", LiveReply: "l", LiveMessage: "a", Fence: 10,
	}
	s := newStore(t)
	view := text(evaluate(t, s, operation, ""))
	got, err := readSession("id", view)
	must(t, err)
	same(t, "the session", got, want)
	for n := range len(view) {
		if _, err := readSession("id", view[:n]); err == nil {
			t.Errorf("readSession accepts a view that ends after %d of %d bytes", n, len(view))
		}
	}
	if _, err := readSession("id", view+"x"); err == nil {
		t.Error("readSession accepts a view with a byte too many")
	}
	want.Metadata, want.Head, want.Cleared, want.LiveReply, want.LiveMessage, want.Context.CompressionEnabled = nil, "", "", "", "", false
	got, err = readSession("id", text(evaluate(t, s, operation, "without the optional fields")))
	must(t, err)
	same(t, "the session without the optional fields", got, want)
}
