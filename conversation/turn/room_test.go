package turn_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/prompt"
	"parley/stream"
)

// A user can ask any model to begin its reply with <think>. Then the requests of other sessions must stay as they are.
func TestSend_ModelReasons_LargerRequestsOnlyIfProviderReportsIt(t *testing.T) {
	const room = 4096 / 4
	for name, test := range map[string]struct {
		result stream.Result
		want   int
	}{
		"in the text":     {stream.Result{Reasoned: true, Usage: &stream.Usage{Prompt: 9, Completion: 9}}, room},
		"apart":           {stream.Result{Reasoned: true, ReasonedApart: true}, room + prompt.ReasoningRoom},
		"only in figures": {stream.Result{Usage: &stream.Usage{Prompt: 9, Completion: 9, Reasoning: 5}}, room + prompt.ReasoningRoom},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []int // requests come one after the other
			n := conversationtest.Start(t, conversationtest.ModelFunc(func(_ context.Context, r stream.Request, write func([]byte)) (stream.Result, error) {
				asked = append(asked, r.MaxTokens)
				write([]byte("hello"))
				result := test.result
				result.FinishReason = "stop"
				return result, nil
			}))
			config := conversation.ContextConfig{MaxTokens: 4096, RetentionPolicy: conversation.FIFO}
			n.Ask(n.NewSession(config), "hello")
			n.Ask(n.NewSession(config), "hello")
			if len(asked) != 2 || asked[0] != room || asked[1] != test.want {
				t.Errorf("the requests have the limits %v, want %d and %d", asked, room, test.want)
			}
		})
	}
}

// The model obeys the limit of its requests, but spends no token on reasoning. Without compression, a reply longer than the window would
// make the session refuse each later send.
func TestSend_ReasoningModelWritesMuch_TextEndsAtReplyRoom(t *testing.T) {
	const room = 4096 / 4
	for _, size := range []int{1, 4, 6, 1000, 1 << 20} {
		for _, word := range []string{"word", "日本語 "} {
			t.Run(fmt.Sprintf("%s in pieces of %d bytes", word, size), func(t *testing.T) {
				closed := false
				n := conversationtest.Start(t, conversationtest.ModelFunc(func(ctx context.Context, r stream.Request, write func([]byte)) (stream.Result, error) {
					text := "hello"
					if r.MaxTokens > room {
						text = strings.Repeat(word, r.MaxTokens*4/len(word))
						if want := room * 256; r.MaxBytes != want {
							t.Errorf("the text may have %d bytes, want %d", r.MaxBytes, want)
						}
					}
					for ; len(text) > 0 && ctx.Err() == nil; text = text[min(size, len(text)):] {
						write([]byte(text[:min(size, len(text))]))
					}
					closed = ctx.Err() != nil
					return stream.Result{FinishReason: "stop", ReasonedApart: true}, ctx.Err()
				}))
				session := n.NewSession(conversation.ContextConfig{MaxTokens: 4096, RetentionPolicy: conversation.FIFO})
				n.Ask(session, "hello")
				reply := n.Ask(session, "write much")
				if reply.Tokens > room || reply.Tokens < room-slack || reply.FinishReason != stream.FinishLength || !closed {
					t.Errorf("the reply has %d tokens, finish reason %q, request closed %v; want about %d, length", reply.Tokens, reply.FinishReason, closed, room)
				}
				if strings.ContainsRune(reply.Content, '\uFFFD') || !strings.HasPrefix(strings.Repeat(word, 4*room), reply.Content) {
					t.Errorf("the reply ends with %q", reply.Content[len(reply.Content)-20:])
				}
				n.Ask(session, "go on")
			})
		}
	}
}

// slack is the number of tokens by which a text may end before the reply room is full.
const slack = 12

func TestSend_ReasoningModelFillsReplyRoom_NotCut(t *testing.T) {
	whole := conversationtest.OfTokens(4096/4-slack, "a reply")
	n := conversationtest.Start(t, conversationtest.ModelFunc(func(_ context.Context, _ stream.Request, write func([]byte)) (stream.Result, error) {
		write([]byte(whole[:8]))
		write([]byte(whole[8:]))
		return stream.Result{FinishReason: "stop", ReasonedApart: true}, nil
	}))
	config := conversation.ContextConfig{MaxTokens: 4096, RetentionPolicy: conversation.FIFO}
	for range 2 {
		if reply := n.Ask(n.NewSession(config), "hello"); reply.Content != whole || reply.FinishReason != "stop" {
			t.Errorf("the reply has %d of %d bytes, and the finish reason %q", len(reply.Content), len(whole), reply.FinishReason)
		}
	}
}
