package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"parley/stream"
)

// sdkReply returns the events of a reply with that text and ending. Each character of the text is a delta.
func sdkReply(text string, ending stream.Ending) []stream.Event {
	reply := stream.NewReply("msg_1")
	reply.Append([]byte(text))
	entry := &stream.Entry{ID: "msg_1", Reply: reply}
	all := []stream.Event{{Kind: stream.Created, Entry: entry}}
	for i, r := range text {
		all = append(all, stream.Event{Kind: stream.Delta, Entry: entry, Offset: i, Delta: []byte(string(r))})
	}
	return append(all, stream.Event{Kind: stream.Ended, Entry: entry, Ending: &ending})
}

// sdkCases contains a reply for each final state, and the chunks that the encoders must make from the reply.
var sdkCases = map[string]struct {
	text   string
	ending stream.Ending
	chunks []string
}{
	"completed": {"hé", stream.Ending{State: stream.Completed, Message: finishedBy("length")}, []string{
		`{"type":"start","messageId":"msg_1"}`, `{"type":"text-start","id":"msg_1"}`, `{"type":"text-delta","id":"msg_1","delta":"h"}`,
		`{"type":"text-delta","id":"msg_1","delta":"é"}`, `{"type":"text-end","id":"msg_1"}`, `{"type":"finish","finishReason":"length"}`}},
	"completed without text": {"", stream.Ending{State: stream.Completed, Message: finishedBy("stop")}, []string{
		`{"type":"start","messageId":"msg_1"}`, `{"type":"finish","finishReason":"stop"}`}},
	"cancelled": {"h", stream.Ending{State: stream.Cancelled, Message: finishedBy("stop")}, []string{
		`{"type":"start","messageId":"msg_1"}`, `{"type":"text-start","id":"msg_1"}`, `{"type":"text-delta","id":"msg_1","delta":"h"}`,
		`{"type":"text-end","id":"msg_1"}`, `{"type":"abort"}`}},
	"interrupted without text": {"", stream.Ending{State: stream.Interrupted, Message: finishedBy("stop")}, []string{
		`{"type":"start","messageId":"msg_1"}`, `{"type":"finish","finishReason":"interrupted"}`}},
	"failed": {"h", stream.Ending{State: stream.Failed, Error: []byte(`{"code":"provider_error","message":"a \"broken\" model"}`)}, []string{
		`{"type":"start","messageId":"msg_1"}`, `{"type":"text-start","id":"msg_1"}`, `{"type":"text-delta","id":"msg_1","delta":"h"}`,
		`{"type":"text-end","id":"msg_1"}`, `{"type":"error","errorText":"a \"broken\" model"}`}},
}

func TestAISDK_EachFinalState_HasExpectedChunks(t *testing.T) {
	for name, c := range sdkCases {
		t.Run(name, func(t *testing.T) {
			var events []byte
			for _, event := range sdkReply(c.text, c.ending) {
				events = AISDK{}.AppendFrame(events, "session_a", event)
			}
			if want := "data: " + strings.Join(c.chunks, "\n\ndata: ") + "\n\ndata: [DONE]\n\n"; string(events) != want {
				t.Errorf("the server-sent events are\n%swant\n%s", events, want)
			}
			var frames, want []byte
			request := NewAISDKFrameEncoder("r\"1")
			for _, event := range sdkReply(c.text, c.ending) {
				frames = request.AppendFrames(frames, event)
			}
			for i, chunk := range c.chunks {
				if text, failed := strings.CutPrefix(chunk, `{"type":"error",`); failed {
					want = fmt.Appendf(want, `{"type":"error","requestId":"r\"1",%s`+"\n", text)
					continue
				}
				want = fmt.Appendf(want, `{"type":"chunk","requestId":"r\"1","sequence":%d,"chunk":%s}`+"\n", i, chunk)
			}
			if c.ending.State != stream.Failed {
				want = append(want, `{"type":"end","requestId":"r\"1"}`+"\n"...)
			}
			if string(frames) != string(want) {
				t.Errorf("the frames are\n%swant\n%s", frames, want)
			}
		})
	}
}

// finishedBy returns a final message with a finish reason.
func finishedBy(reason string) *stream.Document {
	return &stream.Document{Before: []byte(`{"content":`), Content: "hé", After: []byte(`,"finishReason":"` + reason + `"}`)}
}

func TestFinishReason_UnknownReason_BecomesOther(t *testing.T) {
	known := []string{"stop", "length", "content-filter", "tool-calls", "error", "interrupted", "other"}
	for word, want := range map[string]string{
		"stop": "stop", "length": "length", "content_filter": "content-filter", "tool_calls": "tool-calls", "function_call": "tool-calls",
		"": "other", "eos": "other", "interrupted": "other",
	} {
		if got := finishReason(&stream.Ending{State: stream.Completed, Message: finishedBy(word)}); got != want || !slices.Contains(known, got) {
			t.Errorf("finish reason %q became %q, want %q", word, got, want)
		}
	}
}

func TestAISDK_SessionGone_EncodedAsError(t *testing.T) {
	for kind, want := range goneTexts {
		request := NewAISDKFrameEncoder("1")
		frames := string(request.AppendFrames(nil, stream.Event{Kind: kind}))
		if frames != `{"type":"error","requestId":"1","errorText":"`+want+`"}`+"\n" {
			t.Errorf("the frames of event kind %d are %q, want the error %q", kind, frames, want)
		}
		if got := string(AISDK{}.AppendFrame(nil, "s", stream.Event{Kind: kind})); got != `data: {"type":"error","errorText":"`+want+`"}`+"\n\ndata: [DONE]\n\n" {
			t.Errorf("the server-sent events of event kind %d are %q, want the error %q", kind, got, want)
		}
	}
}

func TestAISDK_KindsOutsideDialect_EncodedAsNothing(t *testing.T) {
	request := NewAISDKFrameEncoder("1")
	for kind := range stream.EventKind(50) {
		if kind >= stream.Created && kind <= stream.Expired {
			continue
		}
		event := stream.Event{Kind: kind}
		if got := string(request.AppendFrames(nil, event)) + string(AISDK{}.AppendFrame(nil, "s", event)); got != "" {
			t.Errorf("event kind %d was encoded as %q, want nothing", kind, got)
		}
	}
}

func TestAISDK_AnyText_DecodesToSameText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.ToValidUTF8(rapid.String().Draw(t, "text"), "\uFFFD")
		request := NewAISDKFrameEncoder(strings.ToValidUTF8(rapid.String().Draw(t, "id"), "\uFFFD"))
		var got strings.Builder
		sequence := 0
		for _, event := range sdkReply(text, sdkCases["completed"].ending) {
			for line := range strings.Lines(string(request.AppendFrames(nil, event))) {
				var frame struct {
					Type     string
					Sequence int
					Chunk    struct{ Delta string }
				}
				if err := json.Unmarshal([]byte(line), &frame); err != nil || !utf8.ValidString(line) {
					t.Fatalf("frame %q: %v; want valid UTF-8 and JSON", line, err)
				}
				if frame.Type == "chunk" && frame.Sequence != sequence {
					t.Fatalf("the frame has the sequence %d, want %d", frame.Sequence, sequence)
				}
				sequence++
				got.WriteString(frame.Chunk.Delta)
			}
		}
		if got.String() != text {
			t.Fatalf("the text %q was decoded to %q", text, got.String())
		}
	})
}

func TestAISDK_Delta_NoAllocation(t *testing.T) {
	event := sdkReply("hello", stream.Ending{})[2]
	request := NewAISDKFrameEncoder("1")
	buffer := make([]byte, 0, 1<<10)
	if n := testing.AllocsPerRun(100, func() { request.AppendFrames(buffer, event); AISDK{}.AppendFrame(buffer, "s", event) }); n != 0 {
		t.Errorf("a delta takes %v allocations, want 0", n)
	}
}
