package service_test

import (
	"testing"

	"parley/conversation"
	"parley/conversation/conversationtest"
)

func TestIsReply_ReplyInMemory_OnlyForItsOwner(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	sent := n.Begun(session, "hello")
	model.Next(t).Write("Half of")
	mine := conversationtest.Owner
	other := conversation.Owner{Account: "other", Mode: conversation.Live}
	for _, test := range []struct {
		name    string
		owner   conversation.Owner
		message string
		want    bool
		err     error
	}{
		{"the live reply", mine, sent.Reply.ID, true, nil},
		{"the live reply of another owner", other, sent.Reply.ID, false, conversation.ErrSessionNotFound},
		{"the user's message", mine, n.All(session)[0].ID, false, nil},
		{"an unknown message", mine, "msg_0000000000000000", false, conversation.ErrMessageNotFound},
	} {
		got, err := n.IsReply(t.Context(), test.owner, session, test.message)
		if got != test.want || (test.err == nil) != (err == nil) {
			t.Errorf("%s: %t, %v; want %t, %v", test.name, got, err, test.want, test.err)
		}
		if test.err != nil {
			conversationtest.Fails(t, test.name, err, test.err)
		}
	}
}
