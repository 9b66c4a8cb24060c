package server_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"parley/stream"
	"parley/stream/client"
)

// repeatable is the message that the tests of this file send twice.
var repeatable = client.NewMessage{Content: "hello", IdempotencyKey: "k1"}

// sendRepeatable sends repeatable over REST. If streaming is false, the response comes when the reply has ended.
func (p *parley) sendRepeatable(session string, streaming bool) answer {
	p.t.Helper()
	body := map[string]any{"content": repeatable.Content, "streaming": streaming}
	return p.call("POST", "/v1/sessions/"+session+"/messages", body, "Idempotency-Key", repeatable.IdempotencyKey)
}

// repeatOver sends repeatable with a Go client and iterates to the end. It returns the types of the events, without repetition,
// and the final reply. The last type is the code of the error if the iteration ends with an error.
func repeatOver(t testing.TB, c *client.Client, session string) (kinds []string, final client.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testTimeout, errors.New("the client still waits"))
	defer cancel()
	got := &eventCollector{t: t}
	for e, err := range c.Send(ctx, session, repeatable) {
		if err != nil {
			return append(kinds, errorCode(err)), final
		}
		if got.take(e); e.Type == client.End {
			final = *e.Message
		}
		kinds = append(kinds, e.Type)
	}
	return slices.Compact(kinds), final
}

func TestGoClient_SendRepeated_NeverWaitsForEver(t *testing.T) {
	t.Parallel()
	whole := []string{client.Created, client.Delta, client.End}
	for name, test := range map[string]struct {
		meanwhile func(p *parley, c *call, session string) // between the first send and its repeats
		kinds     []string                                 // what each repeat yields
		status    string
		content   string
	}{
		"reply_completed": {func(_ *parley, c *call, _ string) { c.say("All "); c.say("of it."); c.end() }, whole, "completed", "All of it."},
		"reply_failed": {func(_ *parley, c *call, _ string) {
			c.say("Half of")
			c.finish(stream.Result{}, &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"})
		}, whole, "failed", "Half of"},
		"history_cleared": {func(p *parley, _ *call, session string) {
			p.must("DELETE", "/v1/sessions/"+session+"/messages", nil)
		}, []string{"message_not_found"}, "", ""},
		"session_deleted": {func(p *parley, _ *call, session string) {
			p.must("DELETE", "/v1/sessions/"+session, nil)
		}, []string{"session_not_found"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := newDirected()
			p := start(t, model)
			session := p.session()
			p.sendRepeatable(session, true)
			test.meanwhile(p, model.next(t), session)
			p.sendRepeatable(session, false) // waits for the end of the reply
			c, s := p.goClient(t)
			for range 2 { // the second repeat uses the socket of the first one
				kinds, final := repeatOver(t, c, session)
				if !slices.Equal(kinds, test.kinds) || final.Status != test.status || final.Content != test.content {
					t.Errorf("the repeat yielded %q and the reply %q (%s), want %q and %q (%s)",
						kinds, final.Content, final.Status, test.kinds, test.content, test.status)
				}
			}
			if n := s.dials.Load(); n != 1 {
				t.Errorf("the client opened %d sockets", n)
			}
		})
	}
}

func TestGoClient_SendRepeatedDuringReply_YieldsWholeReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	repeatDuringReply(t, model, p, p)
}

func TestGoClient_SendRepeatedOnOtherNode_YieldsWholeReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	repeatDuringReply(t, model, a, b)
}

// repeatDuringReply sends a message to node a, and repeats the send with a client of node b after half of the reply.
func repeatDuringReply(t *testing.T, model *directed, a, b *parley) {
	t.Helper()
	session := a.session()
	a.sendRepeatable(session, true)
	c := model.next(t)
	c.say(strings.Repeat("Half ", 100))
	again, _ := b.goClient(t)
	got := &eventCollector{t: t}
	for e, err := range again.Send(t.Context(), session, repeatable) {
		if err != nil {
			t.Fatal(err)
		}
		if got.take(e); got.text == strings.Repeat("Half ", 100) && len(got.texts) == 0 {
			c.say("and the rest.")
			c.end()
		}
	}
	if want := strings.Repeat("Half ", 100) + "and the rest."; len(got.texts) != 1 || got.texts[0] != want {
		t.Errorf("the repeat yielded %q", got.texts)
	}
}
