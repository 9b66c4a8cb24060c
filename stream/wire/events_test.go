package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"parley/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func valid(id string) bool { return strings.HasPrefix(id, "msg_") }

func TestParseCursor_ReturnsPositionOfCursor(t *testing.T) {
	for _, p := range []stream.Position{
		{Ended: true}, {ID: "msg_1"}, {ID: "msg_1", Offset: 14}, {ID: "msg_1", Offset: 1 << 30}, stream.After("msg_2"),
	} {
		cursor := Cursor("session_a", p)
		got, err := ParseCursor("session_a", cursor, valid)
		if p.ID == "" {
			p.Ended = got.Ended // before the first message, Ended has no meaning
		}
		if err != nil || got != p {
			t.Errorf("%q: got %+v, %v, want %+v", cursor, got, err, p)
		}
		if _, err := ParseCursor("session_b", cursor, valid); err == nil {
			t.Errorf("ParseCursor accepted the cursor %q for another session", cursor)
		}
	}
}

func TestParseCursor_Malformed_Refused(t *testing.T) {
	good := Cursor("session_a", stream.Position{ID: "msg_1", Offset: 14})
	tag := good[:4]
	for _, cursor := range []string{
		"", ".", "..", tag, tag + ".", tag + "..", tag + "..5", tag + ".msg_1", tag + ".msg_1.", tag + ".msg_1.-1", tag + ".msg_1.+1",
		tag + ".msg_1.01", tag + ".msg_1.1e", tag + ".msg_1.99999999999999999999", tag + ".other.1", good + " ", " " + good,
		good + ".e", tag + ".msg_1.E", strings.Repeat("x", 10000),
	} {
		if p, err := ParseCursor("session_a", cursor, valid); err == nil {
			t.Errorf("ParseCursor accepted %q as %+v", cursor, p)
		}
	}
}

// FuzzParseCursor parses random texts. If ParseCursor accepts a text, Cursor must encode the position to the same text.
func FuzzParseCursor(f *testing.F) {
	f.Add(Cursor("session_a", stream.Position{ID: "msg_1", Offset: 14}))
	f.Add(Cursor("session_a", stream.After("msg_1")))
	f.Add(Cursor("session_a", stream.Position{}))
	f.Fuzz(func(t *testing.T, cursor string) {
		p, err := ParseCursor("session_a", cursor, valid)
		if err == nil && Cursor("session_a", p) != cursor {
			t.Fatalf("ParseCursor accepted %q as %+v, which has the cursor %q", cursor, p, Cursor("session_a", p))
		}
	})
}

// events returns an event of every kind. text is the text of the delta. The variable types has their types on the wire.
func events(text string) []stream.Event {
	entry := &stream.Entry{ID: "msg_1", Created: []byte(`{"messageId":"msg_1"}`)}
	final := &stream.Document{Before: []byte(`{"messageId":"msg_1","content":`), Content: text, After: []byte(`}`)}
	return []stream.Event{
		{Kind: stream.Created, Entry: entry, After: stream.Position{ID: "msg_1"}},
		{Kind: stream.Delta, Entry: entry, Offset: 7, Delta: []byte(text), After: stream.Position{ID: "msg_1", Offset: 7 + len(text)}},
		{Kind: stream.Ended, Entry: entry, After: stream.After("msg_1"), Ending: &stream.Ending{
			State: stream.Failed, Message: final, Error: []byte(`{"code":"provider_error"}`)}},
		{Kind: stream.Ended, Entry: entry, After: stream.After("msg_1"), Ending: &stream.Ending{
			State: stream.Completed, Message: final}},
		{Kind: stream.Cleared}, {Kind: stream.Deleted}, {Kind: stream.Expired},
		{Kind: stream.ContextSummarised, Summary: &stream.SummaryStats{Summarised: 1, Dropped: 2, TokensBefore: 3, TokensAfter: 4}},
		{Kind: stream.Reasoning, Entry: entry, After: stream.Position{ID: "msg_1"}},
	}
}

var types = []string{
	"message.created", "message.delta", "message.failed", "message.completed", "session.cleared", "session.deleted", "session.expired",
	"context.compressed", "reply.reasoning",
}

func TestAppendFrame_EachEvent_TypeAndCursor(t *testing.T) {
	for i, event := range events("x") {
		var got map[string]any
		if err := json.Unmarshal(JSON{}.AppendFrame(nil, "session_a", event), &got); err != nil {
			t.Fatal(err)
		}
		if got["type"] != types[i] || got["sessionId"] != "session_a" {
			t.Errorf("got the frame %v, want the type %s and session_a", got, types[i])
		}
		cursor, hasCursor := got["cursor"].(string)
		if hasCursor != (i < 4) || hasCursor && cursor != Cursor("session_a", event.After) {
			t.Errorf("%s has the cursor %q; only the events of the history must have one", types[i], cursor)
		}
		if types[i] == "context.compressed" && (got["summarised"] != 1.0 || got["dropped"] != 2.0 || got["tokensBefore"] != 3.0 || got["tokensAfter"] != 4.0) {
			t.Errorf("got %v, want the figures 1, 2, 3 and 4", got)
		}
		if types[i] == "reply.reasoning" && got["messageId"] != "msg_1" {
			t.Errorf("got %v, want the id msg_1", got)
		}
		sse := string(SSE{}.AppendFrame(nil, "session_a", event))
		if !strings.HasPrefix(sse, "event: "+types[i]+"\nid: ") || !strings.HasSuffix(sse, "}\n\n") || strings.Count(sse, "\n") != 4 {
			t.Errorf("got the server-sent event %q, want an event, an id and data", sse)
		}
	}
}

func TestJSON_AnyDelta_DecodesToSameText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(rapid.String().Draw(t, "text"), "\uFFFD")
		frame := JSON{}.AppendFrame(nil, "session_a", events(text)[1])
		var got struct{ Delta string }
		if err := json.Unmarshal(frame, &got); err != nil || got.Delta != text || !utf8.Valid(frame) {
			t.Fatalf("the delta %q was decoded to %q, %v", text, got.Delta, err)
		}
	})
	for c := range 0x20 {
		text := "a" + string(rune(c)) + "b"
		var got struct{ Delta string }
		if err := json.Unmarshal(JSON{}.AppendFrame(nil, "s", events(text)[1]), &got); err != nil || got.Delta != text {
			t.Fatalf("the delta %q was decoded to %q, %v", text, got.Delta, err)
		}
	}
}

func TestCloseCode_ReasonFitsCloseFrame(t *testing.T) {
	for code := range closeReasons {
		if r := code.Reason(); r == "" || len(r) > 123 {
			t.Errorf("close code %d has the reason %q, want 1 to 123 bytes", code, r)
		}
	}
}
