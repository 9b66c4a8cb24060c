package storetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/usage"
)

// FixtureOwner owns what the fixtures of the stores hold: data that an earlier version wrote.
var FixtureOwner = conversation.Owner{Account: "acme", Mode: conversation.Live}

// The idempotency keys of the requests in the fixtures. Their digests are those of the keys themselves.
const (
	FixtureCreateKey = "create"
	FixtureSendKey   = "send"
)

// FixtureRequest is the idempotency of a request in the fixtures.
func FixtureRequest(key string) *conversation.Idempotency { return request(key, key) }

// Contents returns what a store says of FixtureOwner, as indented JSON: sessions, messages, contexts, keys, usage, and what the
// requests with idempotency keys did. It changes nothing.
func Contents(t *testing.T, b Backend) []byte {
	t.Helper()
	type indexed struct {
		ID, Role      string
		Tokens        int
		Skip          bool
		Priority      float64
		Terms, Vector []byte
	}
	type session struct {
		Session  conversation.Session
		Messages []conversation.Message
		History  []string // ids
		Index    []indexed
		Summary  conversation.Summary
	}
	type key struct {
		Key  auth.Key
		Tier string // "" where its secret does not work
	}
	var all struct {
		Sessions []session
		Keys     []key
		Created  conversation.SessionCreated
		Sent     *conversation.Replayed
		Usage    []string // one an hour that has counts
	}
	ctx := t.Context()
	page, err := b.Conversation.Sessions(ctx, FixtureOwner, conversation.SessionQuery{Limit: 100})
	must(t, err, "Sessions")
	for _, s := range page.Sessions {
		messages, err := b.Conversation.Messages(ctx, FixtureOwner, s.ID, conversation.MessageQuery{Ascending: true, Limit: 100})
		must(t, err, "Messages")
		c, err := b.Conversation.Context(ctx, FixtureOwner, s.ID, s.Context.MaxTokens)
		must(t, err, "Context")
		read := session{Session: s, Messages: messages.Messages, History: ids(c.History), Summary: c.Summary}
		for i := range c.Index {
			x := &c.Index[i]
			terms, _ := x.Terms.AppendBinary(nil)
			read.Index = append(read.Index, indexed{x.ID, string(x.Role), x.Tokens, x.Skip, x.Priority, terms, x.Vector})
		}
		all.Sessions = append(all.Sessions, read)
	}
	keys, err := b.Keys.Keys(ctx, auth.Owner{Account: FixtureOwner.Account, Mode: string(FixtureOwner.Mode)})
	must(t, err, "Keys")
	for _, k := range keys {
		read := key{Key: k}
		if len(k.Secrets) > 0 {
			found, err := b.Keys.KeyByHash(ctx, k.Secrets[0].Hash)
			must(t, err, "KeyByHash")
			read.Tier = string(found.Tier)
		}
		all.Keys = append(all.Keys, read)
	}
	all.Created, err = b.Conversation.CreateSession(ctx, FixtureOwner, conversation.NewSession{Idempotency: FixtureRequest(FixtureCreateKey)})
	must(t, err, "CreateSession")
	sent, err := b.Conversation.BeginTurn(ctx, FixtureOwner, conversation.NewTurn{
		SessionID: all.Created.Session.ID, Idempotency: FixtureRequest(FixtureSendKey), Waiter: "fixture",
	})
	must(t, err, "BeginTurn")
	all.Sent = sent.Replayed
	used, err := b.Conversation.Usage(ctx, FixtureOwner, 0, 1<<30)
	must(t, err, "Usage")
	for i := range used.Hours {
		hour, counts := &used.Hours[i], map[usage.Field]int64{}
		for field, n := range hour.Bucket.All() {
			counts[field] = n
		}
		all.Usage = append(all.Usage, fmt.Sprintf("hour %d: %v, existing %d", hour.Hour, counts, hour.Existing))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	must(t, encoder.Encode(all), "JSON")
	return out.Bytes()
}
