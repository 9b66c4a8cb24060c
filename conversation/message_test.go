package conversation

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"parley/conversation/usage"
	"parley/conversation/window"
	"parley/stream"
)

func TestTime_JSON_RoundTrips(t *testing.T) {
	at := TimeOf(time.Date(2026, 3, 1, 12, 30, 0, 45_678_900, time.FixedZone("", 3600)))
	b, err := json.Marshal(at)
	if err != nil || string(b) != `"2026-03-01T11:30:00.045Z"` || at.String() != "2026-03-01T11:30:00.045Z" {
		t.Errorf("the time is encoded as %s, its String is %s, error %v", b, at, err)
	}
	var back Time
	if err := json.Unmarshal(b, &back); err != nil || back != at {
		t.Errorf("read back as %s: %v", back, err)
	}
	if got := at.Add(time.Hour); got.Go() != at.Go().Add(time.Hour) {
		t.Errorf("an hour later it is %s", got)
	}
	if err := json.Unmarshal([]byte(`"yesterday"`), &back); err == nil || !strings.Contains(err.Error(), "invalid time") {
		t.Errorf("decoding an invalid time returned %v", err)
	}
}

func reply(status stream.State, content string) *Message {
	return &Message{ID: "msg_2", SessionID: "session_1", Role: Assistant, Status: status, Content: content, Tokens: 5, Usage: &Usage{Total: 9}, FinishReason: "stop"}
}

func TestTokensInPrompt_FailedOrEmptyReply_Zero(t *testing.T) {
	for name, test := range map[string]struct {
		m    *Message
		want int
	}{
		"user":            {&Message{Role: User, Content: "hello", Tokens: 2}, 2 + window.MessageOverhead},
		"completed reply": {reply(stream.Completed, "hi"), 5 + window.MessageOverhead},
		"cancelled reply": {reply(stream.Cancelled, "hi"), 5 + window.MessageOverhead},
		"failed reply":    {reply(stream.Failed, "hi"), 0},
		"empty reply":     {reply(stream.Completed, ""), 0},
	} {
		if got := test.m.TokensInPrompt(); got != test.want {
			t.Errorf("%s: TokensInPrompt is %d, want %d", name, got, test.want)
		}
	}
}

func TestEntry_FailedReply_BeginsEmptyThenEnds(t *testing.T) {
	asked := &Message{ID: "msg_1", Role: User, Content: "a <b> & c", Status: stream.Completed}
	if e := asked.Entry(); e.ID != "msg_1" || e.Reply != nil || !strings.Contains(string(e.Created), `"content":"a <b> & c"`) {
		t.Errorf("the entry of a user's message is %s", e.Created)
	}
	failed := reply(stream.Failed, "half")
	failed.Error = &ReplyError{Code: "provider_error", Message: "it broke"}
	e := failed.Entry()
	var begun Message
	if err := json.Unmarshal(e.Created, &begun); err != nil || begun.Status != stream.Streaming || begun.Content != "" || begun.Usage != nil {
		t.Errorf("the reply's entry begins with %s: %v", e.Created, err)
	}
	text, ending := e.Reply.Snapshot()
	if string(text) != "half" || ending.State != stream.Failed || string(ending.Error) != `{"code":"provider_error","message":"it broke"}` {
		t.Errorf("the reply's entry ends with %q %+v", text, ending)
	}
	lost := failed.AsLost()
	if lost.Status != stream.Interrupted || lost.Content != "half" || lost.Error != nil || *lost.Usage != (Usage{Estimated: true}) || failed.Status != stream.Failed {
		t.Errorf("AsLost returned %+v", lost)
	}
	defer func() {
		if recover() == nil {
			t.Error("encode accepted a channel")
		}
	}()
	encode(make(chan int))
}

func TestIndex_TermsOnlyForSemanticPolicy(t *testing.T) {
	m := reply(stream.Failed, "text")
	m.Metadata, m.Terms = json.RawMessage(`{"priority":"high"}`), window.TermsOf("lighthouse")
	if x := Index(m, Semantic); x.ID != m.ID || !x.Skip || x.Priority != window.High || len(x.Terms) == 0 || x.Tokens != 5 || x.Role != Assistant {
		t.Errorf("an entry for the semantic policy is %+v", x)
	}
	if x := Index(m, Priority); x.Terms != nil {
		t.Errorf("an entry for the priority policy has terms: %+v", x)
	}
}

func TestSummary_Weighed_AddsMessageOverhead(t *testing.T) {
	if none := (Summary{Tokens: 5}); none.Weighed() != (window.Summary{}) {
		t.Errorf("without a summary, Weighed returned %+v", none.Weighed())
	}
	s := Summary{Tokens: 5, Last: "msg_2", Count: 2, Replaced: 80}
	if s.Weighed() != (window.Summary{Tokens: 5 + window.MessageOverhead, Last: "msg_2", Count: 2}) {
		t.Errorf("Weighed returned %+v", s.Weighed())
	}
	if got := s.Stats(1); got != (stream.SummaryStats{Summarised: 1, TokensBefore: 80, TokensAfter: 5 + window.MessageOverhead}) {
		t.Errorf("Stats returned %+v", got)
	}
}

func TestSession_End_PositionAfterHead(t *testing.T) {
	if p := (&Session{}).End(); p != (stream.Position{}) {
		t.Errorf("End of an empty session is %+v", p)
	}
	if p := (&Session{Head: "msg_2"}).End(); p != stream.After("msg_2") {
		t.Errorf("End is %+v", p)
	}
}

func TestTurnStart_Context_CountsExcludeTurn(t *testing.T) {
	begun := TurnStart{
		Session: Session{MessageCount: 4, HistoryTokens: 20}, Message: Message{Role: User, Content: "hello", Tokens: 2},
		Summary: Summary{Last: "msg_1"}, History: []Message{{ID: "msg_2"}}, Index: []Indexed{{ID: "msg_2"}},
	}
	c := begun.Context()
	if c.Session.MessageCount != 2 || c.Session.HistoryTokens != 20-2-window.MessageOverhead || c.Summary != begun.Summary || len(c.History) != 1 || len(c.Index) != 1 {
		t.Errorf("the context is %+v", c)
	}
	if begun.Session.MessageCount != 4 {
		t.Error("Context changed the session of the TurnStart")
	}
}

func TestUsageOf_EachEvent_CountsOnlyThatEvent(t *testing.T) {
	if b := UsageOfSession(); b.Sessions != 1 {
		t.Errorf("a session: %+v", b)
	}
	if b := UsageOfTurnStart(User); b.UserMessages != 1 || b.SystemMessages != 0 || b.AssistantMessages != 1 {
		t.Errorf("a user's turn: %+v", b)
	}
	if b := UsageOfTurnStart(System); b.UserMessages != 0 || b.SystemMessages != 1 || b.AssistantMessages != 1 {
		t.Errorf("a system's turn: %+v", b)
	}
	if b := UsageOfSummary(Usage{Prompt: 3, Completion: 4, Total: 7}); b.PromptTokens != 3 || b.CompletionTokens != 4 || b.Completed != 0 {
		t.Errorf("a summary: %+v", b)
	}
	for status, count := range map[stream.State]func(usage.Bucket) int64{
		stream.Completed:   func(b usage.Bucket) int64 { return int64(b.Completed) },
		stream.Cancelled:   func(b usage.Bucket) int64 { return int64(b.Cancelled) },
		stream.Failed:      func(b usage.Bucket) int64 { return int64(b.Failed) },
		stream.Interrupted: func(b usage.Bucket) int64 { return int64(b.Interrupted) },
	} {
		m := reply(status, "text")
		m.Usage = &Usage{Prompt: 3, Completion: 4}
		b := UsageOfTurnEnd(m, Timing{FirstToken: time.Microsecond, Duration: time.Second})
		if count(b) != 1 || b.PromptTokens != 3 || b.CompletionTokens != 4 || b.Completed+b.Cancelled+b.Failed+b.Interrupted != 1 {
			t.Errorf("%s: the counts are %+v", status, b)
		}
		unknown := UsageOfTurnEnd(m, Timing{})
		if unknown.Duration != nil || unknown.FirstToken != nil || b.Duration == nil || b.FirstToken == nil {
			t.Errorf("%s: an unknown duration is counted: %+v", status, unknown)
		}
	}
}

func TestErrors_SpecificErrors_WrapGeneralOnes(t *testing.T) {
	for name, test := range map[string]struct{ err, is error }{
		"draining": {ErrDraining, ErrUnavailable}, "reply lost": {ErrReplyLost, ErrUnavailable}, "history cleared": {ErrHistoryCleared, stream.ErrCancelled},
	} {
		if !errors.Is(test.err, test.is) {
			t.Errorf("%s: the error %v does not wrap %v", name, test.err, test.is)
		}
	}
	if got := (&OverflowError{CurrentTokens: 101, MaxTokens: 100}).Error(); got != "the context window is exceeded: 101 tokens of 100" {
		t.Error(got)
	}
}
