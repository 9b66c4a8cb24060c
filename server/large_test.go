package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"parley/stream"
)

// TestSend_ModelIgnoresLimit_AllViewersGetTheSameEnd reads a reply that was cut off at its limit: as a waiting caller,
// on a socket, as an event stream and in the history. The reply room is 1,024 tokens, so the limit is 256 KiB.
func TestSend_ModelIgnoresLimit_AllViewersGetTheSameEnd(t *testing.T) {
	t.Parallel()
	const line = "a \"line\"\twith ünïcode 🙂\n"
	p := start(t, modelFunc(func(ctx context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
		for ctx.Err() == nil {
			write([]byte(line))
		}
		return stream.Result{}, ctx.Err()
	}))
	session := p.session()
	cursor := p.must("GET", messages(session), nil)["stream"].(map[string]any)["cursor"].(string)
	s := p.dial()
	s.mustSubscribe(session, cursor)
	reply := p.send(session, "hello")
	content := reply["content"].(string)
	want := strings.ToValidUTF8(strings.Repeat(line, 256<<10)[:256<<10], "")
	if content != want || reply["status"] != "completed" || reply["finishReason"] != "length" {
		t.Fatalf("a reply of %d bytes is %v with %v, want %d bytes, completed with length", len(content), reply["status"], reply["finishReason"], len(want))
	}
	check := func(name string, got *message) {
		t.Helper()
		if got.Content != want || got.Status != "completed" {
			t.Errorf("%s: got %d bytes, %s; want %d bytes, completed", name, len(got.Content), got.Status, len(want))
		}
	}
	f, text := s.any(), ""
	for ; f.Type != "message.completed"; f = s.any() {
		text += f.Delta
	}
	if check("the socket", f.Message); text != want {
		t.Errorf("the deltas have %d bytes, want %d", len(text), len(want))
	}
	events := p.events(t, session, reply["messageId"].(string), "")
	for e, ok := events.next(); ok; e, ok = events.next() {
		if e.name == "message.completed" {
			var f frame
			if err := json.Unmarshal([]byte(e.data), &f); err != nil {
				t.Fatal(err)
			}
			check("the event stream", f.Message)
		}
	}
	check("the history", &p.history(session)[1])
}
