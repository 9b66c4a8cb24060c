package turn_test

import (
	"context"
	"strings"
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
	"parley/stream/models"
)

// recorded returns a model that replies with a short text, and a channel with its requests.
func recorded(name string) (*models.Model, chan stream.Request) {
	requests := make(chan stream.Request, 100)
	return models.New(name, conversationtest.ModelFunc(func(_ context.Context, r stream.Request, write func([]byte)) (stream.Result, error) {
		requests <- r
		write([]byte(conversationtest.OfTokens(20, "a reply")))
		return stream.Result{FinishReason: "stop"}, nil
	}), 0), requests
}

// useModel makes a session use a model and instructions.
func useModel(t *testing.T, n *conversationtest.Node, session, model string) {
	t.Helper()
	_, err := n.Store.UpdateSession(t.Context(), owner, session, func(s *conversation.Session) error {
		s.Model.Model, s.Instructions, s.InstructionTokens = model, "Be brief.", 3
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSend_ModelOfSession_RepliesAndSummarises(t *testing.T) {
	byDefault, unused := recorded("default")
	other, requests := recorded("other")
	n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Models = models.Of(byDefault, other) })
	session := n.NewSession(conversation.ContextConfig{MaxTokens: 400, CompressionEnabled: true, RetentionPolicy: conversation.FIFO})
	useModel(t, n, session, "other")
	replies, summaries := 0, 0
	for range 10 {
		n.Ask(session, conversationtest.OfTokens(30, "a question"))
	}
	n.Drain(t.Context()) // waits for the summaries
	for len(requests) > 0 {
		switch r := <-requests; {
		case r.Summary:
			summaries++
		case r.Messages[0].Role != "system" || r.Messages[0].Content != "Be brief.":
			t.Errorf("the prompt begins with %+v", r.Messages[0])
		default:
			replies++
		}
	}
	if replies != 10 || summaries == 0 || len(unused) != 0 {
		t.Errorf("the session's model made %d replies and %d summaries, the default model %d", replies, summaries, len(unused))
	}
}

// A server that was started again with other models must not reply with another model.
func TestSend_ModelNotConfigured_FailsAndNamesModel(t *testing.T) {
	byDefault, unused := recorded("default")
	n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Models = models.Of(byDefault) })
	session := n.NewSession()
	useModel(t, n, session, "gone")
	reply := n.SendAndWait(t.Context(), conversationtest.Message(session, "hello"))
	if reply.Err != nil || reply.Status != stream.Failed || reply.Error.Code != stream.CodeProviderError || !strings.Contains(reply.Error.Message, `"gone"`) {
		t.Errorf("the reply is %+v", reply)
	}
	if len(unused) != 0 {
		t.Error("the default model got a request")
	}
	useModel(t, n, session, "default")
	if m := n.Ask(session, "hello again"); m.Status != stream.Completed {
		t.Errorf("the reply of a configured model is %+v", m)
	}
}
