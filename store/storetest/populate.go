package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// Populate writes what a fixture holds.
func Populate(t *testing.T, b Backend) {
	t.Helper()
	s := &subject{ctx: context.WithoutCancel(t.Context()), store: b.Conversation, keys: b.Keys, seals: b.Tickets, owner: FixtureOwner}
	owner := auth.Owner{Account: FixtureOwner.Account, Mode: string(FixtureOwner.Mode)}
	var made []auth.Key
	for _, name := range []string{"plain", "rotated", "revoked"} {
		key, err := b.Keys.CreateKey(s.ctx, auth.Key{
			Owner: owner, ID: auth.KeyPrefix + conversation.RandomText(16), Name: name, Scopes: []auth.Scope{auth.Admin, auth.ReadMessages},
			Prefix: "svc_live_ab", Secrets: []auth.Secret{{Hash: auth.HashOf("svc_live_" + name)}},
		}, limit.Pro)
		must(t, err, "CreateKey")
		made = append(made, key)
	}
	_, err := b.Keys.RotateKey(s.ctx, owner, made[1].ID, auth.HashOf("svc_live_new"), "svc_live_cd")
	must(t, err, "RotateKey")
	must(t, b.Keys.RevokeKey(s.ctx, owner, made[2].ID), "RevokeKey")
	must(t, b.Keys.TouchKeys(s.ctx, []auth.Use{{Owner: owner, KeyID: made[0].ID, At: made[0].CreatedAt}}), "TouchKeys")

	// All kinds of replies, by a session that was made, and a message that was sent, with an idempotency key.
	first := plain()
	first.UserID, first.Metadata, first.Idempotency = "user_0123456789ABCDEF", json.RawMessage(`{"title":"Lighthouses","n":1.50}`), FixtureRequest(FixtureCreateKey)
	session := s.create(t, first)
	for i, reply := range []conversation.Message{
		{Content: "A lighthouse warns ships. ä 水 \x00 <>&", Tokens: 12, Status: stream.Completed, FinishReason: "stop",
			Usage: &conversation.Usage{Prompt: 17, Completion: 12, Total: 29},
			Context: &conversation.ContextReport{Policy: conversation.FIFO, PromptTokens: 17, MaxTokens: 4096,
				Kept: conversation.MessageRange{Count: 1, First: "msg_0000000000000001", Last: "msg_0000000000000002"}}},
		{Content: strings.Repeat("long ", 200), Tokens: 200, Status: stream.Completed, FinishReason: "length",
			Usage: &conversation.Usage{Prompt: 1 << 40, Completion: 200, Total: 1<<40 + 200, Estimated: true},
			Context: &conversation.ContextReport{Policy: conversation.Semantic, PromptTokens: 300, MaxTokens: 1_000_000,
				Kept: conversation.MessageRange{Count: 300, First: "msg_0000000000000005", Last: "msg_0000000000000009"},
				InSummary: conversation.MessageRange{Count: 7, Last: "msg_0000000000000003"}, Dropped: conversation.MessageRange{Count: 2, First: "msg_0000000000000004"},
				Skipped: conversation.MessageRange{Count: 1}, Summarised: true, Similarity: conversation.ByEmbeddings, SummaryFault: conversation.SummaryLate}},
		{Content: "half a", Tokens: 2, Status: stream.Cancelled, Usage: &conversation.Usage{}},
		{Status: stream.Failed, Error: &conversation.ReplyError{Code: "provider_error", Message: "The model's server failed."},
			Context: &conversation.ContextReport{SummaryFault: conversation.SummaryFailed, Similarity: conversation.ByWords}},
		{Content: "cut", Tokens: 1, Status: stream.Interrupted, Usage: &conversation.Usage{Prompt: 5, Completion: 1, Total: 6, Estimated: true}},
	} {
		turn := question(session.ID, fmt.Sprintf("Question %d?", i))
		switch i {
		case 0:
			turn.Idempotency = FixtureRequest(FixtureSendKey)
		case 1:
			turn.Role, turn.Metadata = conversation.System, json.RawMessage(`{"priority":"high", "a":[1]}`)
		}
		s.end(t, s.begin(t, turn).Key, reply)
	}

	// Indices, vectors and summaries, of windows that are full.
	for _, policy := range []conversation.RetentionPolicy{conversation.Priority, conversation.Semantic} {
		session := s.create(t, choosing(policy))
		var vectors []conversation.ExchangeVector
		for i, metadata := range []string{"", `{"priority":"high"}`, `{"priority":-2.5}`, `{"priority":"low"}`, "", ""} {
			turn := question(session.ID, fmt.Sprint("What is a lighthouse for? ", i))
			if metadata != "" {
				turn.Metadata = json.RawMessage(metadata)
			}
			reply := answer(fmt.Sprint("To warn ships. ", i))
			reply.Terms = window.TermsOf(turn.Content, reply.Content)
			if i == 4 {
				reply.Status, reply.Content = stream.Failed, ""
			}
			begun := s.begin(t, turn)
			s.end(t, begun.Key, reply)
			if i > 1 {
				vectors = append(vectors, conversation.ExchangeVector{Reply: begun.Reply.ID, Vector: window.Vector([]byte{byte(i), 0, 255, 1, 0})})
			}
			if i == 1 {
				must(t, s.store.SaveSummary(s.ctx, s.owner, session.ID, "", conversation.Summary{
					Text: "Summary so far: lighthouses.", Tokens: 6, Last: begun.Reply.ID, Count: 4, Replaced: 46,
				}, conversation.Usage{Prompt: 50, Completion: 6, Total: 56}), "SaveSummary")
			}
		}
		must(t, s.store.SetVectors(s.ctx, s.owner, session.ID, vectors), "SetVectors")
	}

	// A history that was cleared, and a turn that is live, with a journal.
	cleared := s.create(t, plain())
	s.exchange(t, cleared.ID, "to be cleared")
	_, err = s.store.ClearMessages(s.ctx, s.owner, cleared.ID, "clears")
	must(t, err, "ClearMessages")
	begun := s.begin(t, question(cleared.ID, "live"))
	must(t, s.store.Journal(s.ctx, []stream.Segment[conversation.TurnKey]{{Key: begun.Key, Text: []byte("so far ä")}}), "Journal")
}
