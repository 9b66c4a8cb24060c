package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/stream"
)

// summarising is a model that can summarise. Each reply has 46 tokens.
type summarising = conversationtest.Summarising

// summaryTest has a server with a summarising model, a session, and a socket that views the session. In the window of 1,000
// tokens, 747 are for messages. An exchange takes 100, so after the sixth the window is over 80 % full. Then the model summarises
// the first five exchanges, in two calls.
type summaryTest struct {
	*parley
	model   *summarising
	session string
	socket  *socket
}

func newSummaryTest(t *testing.T, model *summarising, policy string, options ...option) *summaryTest {
	p := start(t, model, options...)
	f := &summaryTest{parley: p, model: model, session: p.windowed(1000, policy), socket: p.dial()}
	f.socket.mustSubscribe(f.session, "")
	return f
}

// talk sends a message of 46 tokens that begins with name, and returns the reply.
func (f *summaryTest) talk(name string) message {
	f.t.Helper()
	name += " "
	return decodeInto[message](f.t, f.call("POST", messages(f.session), content(name+ofTokens(46)[len(name):])))
}

// nextSummary returns the next context.compressed frame.
func (f *summaryTest) nextSummary() map[string]any {
	f.t.Helper()
	for {
		if got := f.socket.any(); got.Type == "context.compressed" {
			return decodeInto[map[string]any](f.t, answer{raw: got.raw})
		}
	}
}

// TestSummary_ShownInFrameDryRunAndReply checks what clients see of a summary: in the frame, in a dry run and in a reply's
// context. Tests in conversation/background check which messages are summarised, and when.
func TestSummary_ShownInFrameDryRunAndReply(t *testing.T) {
	f := newSummaryTest(t, &summarising{}, "fifo")
	for i := range 6 {
		f.talk(fmt.Sprint("m", i))
	}
	last := f.nextSummary() // there are two summaries in a row, and a viewer may get only the second
	if last["summarised"] == 8.0 && last["tokensBefore"] == 400.0 {
		last = f.nextSummary()
	}
	if last["sessionId"] != f.session || last["summarised"] != 2.0 || last["dropped"] != 0.0 || last["tokensAfter"] == 0.0 ||
		last["tokensBefore"] != float64(107+count("Summary of the conversation so far:\nsummary 1")-3) {
		t.Errorf("viewers got %v", last)
	}
	f.talk("m6")
	dry := decodeInto[struct{ Summary string }](t, f.call("POST", "/v1/sessions/"+f.session+"/context", content(ofTokens(46))))
	if dry.Summary != "Summary of the conversation so far:\nsummary 2" {
		t.Errorf("a dry run shows the summary %q", dry.Summary)
	}
	report := f.talk("m7").Context
	h := f.history(f.session)
	folded, kept := report["folded"].(map[string]any), report["kept"].(map[string]any)
	if folded["count"] != 2.0 || folded["last"] != h[1].MessageID || kept["count"] != 13.0 || kept["first"] != h[2].MessageID ||
		report["summarised"] != true || report["folding"] != nil || len(h) != 16 {
		t.Errorf("the report is %v", report)
	}
}

// TestSummary_LongHistory_EachMessageSummarisedOnce has a history that is much longer than the part that the store returns for a
// turn. Tests in conversation/background use only the embedded store. This test also runs on Redis.
func TestSummary_LongHistory_EachMessageSummarisedOnce(t *testing.T) {
	const exchanges = 70
	f := newSummaryTest(t, &summarising{}, "semantic")
	ctx, owner := context.Background(), conversation.Owner{Account: "default", Mode: conversation.Live}
	for i := range exchanges {
		begun, err := f.backend.Conversation.BeginTurn(ctx, owner, conversation.NewTurn{
			SessionID: f.session, Role: conversation.User, Content: fmt.Sprint("question-", i), Tokens: 46, OnBusy: conversation.Reject, Waiter: fmt.Sprint(i),
		})
		if err != nil {
			t.Fatal(err)
		}
		reply := conversation.Message{Content: fmt.Sprint("reply-", i), Tokens: 46, Status: stream.Completed}
		if _, err := f.backend.Conversation.EndTurn(ctx, begun.Key, reply, conversation.Timing{}); err != nil {
			t.Fatal(err)
		}
	}
	for turns := 0; f.talk("m").Context["folding"] != nil; turns++ {
		if turns > 20 {
			t.Fatal("after 20 turns, a summary is still outstanding")
		}
	}
	f.handler.BeginDrain()
	f.drain(ctx) // waits until the summaries have ended
	_, calls := f.model.Called()
	next := 0
	for _, call := range calls {
		for line := range strings.Lines(call.Messages[1].Content) {
			var m struct{ Role, Content string }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			if m.Role == "" || next == 2*exchanges {
				continue // the previous summary, or a message that talk has sent
			}
			if want := fmt.Sprint([]string{"question-", "reply-"}[next%2], next/2); m.Content != want {
				t.Fatalf("summarised %s, want %s", m.Content, want)
			}
			next++
		}
	}
	if next < 2*exchanges-12 {
		t.Errorf("%d of %d messages are summarised", next, 2*exchanges)
	}
}
