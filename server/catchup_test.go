package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// grow writes n exchanges of 100 tokens into the session's history, as if nobody had ever folded it.
func (f *folding) grow(n int) {
	f.t.Helper()
	ctx, owner := context.Background(), conversation.Owner{Account: "default", Mode: conversation.Live}
	for i := range n {
		text := fmt.Sprintf("question-%d", i)
		begun, err := f.backend.Conversation.BeginTurn(ctx, owner, conversation.NewTurn{
			SessionID: f.session, Role: conversation.User, Content: text, Tokens: 46, OnBusy: conversation.Reject, Waiter: fmt.Sprint(i),
		})
		if err != nil {
			f.t.Fatal(err)
		}
		reply := fmt.Sprintf("answer-%d", i)
		_, err = f.backend.Conversation.EndTurn(ctx, begun.Key, conversation.Message{
			Content: reply, Tokens: 46, Status: stream.Completed, Terms: window.TermsOf(text, reply),
		}, conversation.Timing{})
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestALongHistoryThatWasNeverFoldedIsCaughtUpWith has a history far beyond what a turn lists: each turn folds a bounded part of it,
// in its order, until nothing is behind; no message is left out, and none folded twice.
func TestALongHistoryThatWasNeverFoldedIsCaughtUpWith(t *testing.T) {
	for _, policy := range []string{"fifo", "priority", "semantic"} {
		t.Run(policy, func(t *testing.T) {
			const exchanges = 70
			model := &summarising{}
			f := newFolding(t, model, policy)
			f.grow(exchanges)
			turns := 0
			for reply := f.talk("m"); reply.Context["folding"] != nil; reply = f.talk("m") {
				if turns++; turns > 20 {
					t.Fatalf("after %d turns the reply is built from %v", turns, reply.Context)
				}
				if reply.Status != "completed" || reply.Context["folding"] != "late" || reply.Context["dropped"].(map[string]any)["count"] == 0.0 {
					t.Fatalf("while it is caught up with: %v", reply.Context)
				}
			}
			f.handler.BeginDrain()
			f.drain(context.Background())
			replies, folds := model.called()
			next := 0
			for _, fold := range folds {
				for line := range strings.Lines(fold.Messages[1].Content) {
					var m struct{ Role, Content string }
					if err := json.Unmarshal([]byte(line), &m); err != nil {
						t.Fatal(err)
					}
					if m.Role == "" || next >= 2*exchanges {
						continue // the summary, or what this test sends
					}
					want := fmt.Sprintf("question-%d", next/2)
					if next%2 == 1 {
						want = fmt.Sprintf("answer-%d", next/2)
					}
					if m.Content != want {
						t.Fatalf("folded %s, want %s", m.Content, want)
					}
					next++
				}
			}
			t.Logf("%d foldings in %d turns folded %d messages", len(folds), len(replies), next)
			if s := f.summary(); next < 2*exchanges-12 || s.Count < next {
				t.Errorf("%d messages of %d were folded; the summary has %d", next, 2*exchanges, s.Count)
			}
		})
	}
}

// TestWhatIsNearReachesTheModelFromFarBack has a message that is folded, and beyond what a turn returns, sent word for word.
func TestWhatIsNearReachesTheModelFromFarBack(t *testing.T) {
	for policy, fact := range map[string]map[string]any{
		"semantic": content("lighthouse-keepers paint their lighthouse red " + ofTokens(30)),
		"priority": content("lighthouse "+ofTokens(30), "metadata", map[string]any{"priority": "high"}),
	} {
		t.Run(policy, func(t *testing.T) {
			model := &summarising{}
			f := newFolding(t, model, policy)
			f.must("POST", messages(f.session), fact)
			for i := range 12 {
				f.talk(fmt.Sprint("m", i))
			}
			model.called()
			reply := decodeInto[message](t, f.call("POST", messages(f.session), content("which colour has a lighthouse?")))
			asked, _ := model.called()
			for _, c := range asked {
				if c.Summary {
					continue
				}
				var said []string
				for _, m := range c.Messages {
					said = append(said, m.Content)
				}
				i := strings.Index(strings.Join(said, "\n"), "lighthouse")
				if !strings.HasPrefix(said[0], "Summary") || !strings.HasPrefix(said[1], "lighthouse") || said[2] != ofTokens(46) {
					t.Errorf("the model was asked %.200q, found at %d", said, i)
				}
			}
			if len(asked) == 0 || reply.Context["summarised"] != true || reply.Context["folded"].(map[string]any)["count"] == 0.0 {
				t.Errorf("the report is %v", reply.Context)
			}
		})
	}
}

func TestATurnIsCancelledWhileItWaitsForAFolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		summary, began, _ := heldBack()
		model := &summarising{}
		p := startPiped(t, model)
		f := &folding{parley: p, model: model, session: p.windowed(1000, "fifo")}
		f.full(t)
		synctest.Wait()
		model.mu.Lock()
		model.summary = summary
		model.mu.Unlock()
		reply := f.begin(f.session, ofTokens(46))["messageId"].(string)
		<-began
		start := time.Now()
		m := decodeInto[message](t, f.call("POST", messages(f.session)+"/"+reply+"/cancel", nil))
		if m.Status != "cancelled" || time.Since(start) != 0 {
			t.Errorf("after %v: %+v", time.Since(start), m)
		}
	})
}
