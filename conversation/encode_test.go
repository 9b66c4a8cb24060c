package conversation

import (
	"encoding/json"
	"reflect"
	"testing"

	"parley/stream"
)

// encode uses encoding/json. The documents of encode.go must equal its JSON.
func TestMessage_AnyFields_EncodedAsByEncodingJSON(t *testing.T) {
	report := &ContextReport{
		Policy: Semantic, PromptTokens: 4, MaxTokens: 64, ModelTokens: 32, Kept: MessageRange{Count: 5, First: "a", Last: "b"},
		Dropped: MessageRange{Count: 1, Last: "c"}, Summarised: true, Similarity: ByWords, SummaryFault: SummaryLate,
	}
	for name, m := range map[string]Message{
		"empty":    {},
		"question": {ID: "msg_1", SessionID: "session_1", Role: User, Content: "<a>&\"\\\n\x01\x7f😀", Tokens: 3, CreatedAt: 1_700_000_000_045, Status: stream.Completed},
		"metadata": {Role: System, Content: "x", Metadata: json.RawMessage(" { \"content\": \"<&>\", \"n\" : [ 1 , 2 ] } "), Status: stream.Completed},
		"live":     {Role: Assistant, CreatedAt: 1, Status: stream.Streaming},
		"reply": {
			Role: Assistant, Content: "yes", Tokens: 200, Status: stream.Completed, FinishReason: "stop", Context: report,
			Usage: &Usage{Prompt: 1, Completion: 2, Reasoning: 1, Total: 3, Estimated: true},
		},
		"failed": {Role: Assistant, Status: stream.Failed, Context: &ContextReport{}, Usage: &Usage{}, Error: &ReplyError{Code: "a", Message: "<b>"}},
	} {
		if got, want := string(m.Document().AppendJSON(nil)), string(encode(m)); got != want {
			t.Errorf("%s: got the document\n%s, want\n%s", name, got, want)
		}
		created := m
		if m.Role == Assistant {
			created = m.AsBegun()
		}
		if got, want := string(m.Created()), string(encode(created)); got != want {
			t.Errorf("%s: got the created message\n%s, want\n%s", name, got, want)
		}
	}
}

// A new field must be encoded in encode.go, and set in the test above.
func TestMessage_Fields_AllEncoded(t *testing.T) {
	for kind, encoded := range map[reflect.Type]int{
		reflect.TypeFor[Message](): 13, reflect.TypeFor[Usage](): 5, reflect.TypeFor[ContextReport](): 11, reflect.TypeFor[MessageRange](): 3,
	} {
		if n := kind.NumField(); n != encoded {
			t.Errorf("%v has %d fields, but encode.go knows %d", kind, n, encoded)
		}
	}
}

func TestMessage_Created_OneAllocation(t *testing.T) {
	m := Message{ID: "msg_1", SessionID: "session_1", Role: User, Content: "Hello", Status: stream.Completed}
	if n := testing.AllocsPerRun(100, func() { m.Created() }); n != 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}
