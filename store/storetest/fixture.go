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

// FixtureOwner owns the data in the fixtures of the stores. Earlier versions have written these fixtures. A request with the
// idempotency key "create" has created one of the sessions. A request with the key "send" has sent a message to that session.
var FixtureOwner = conversation.Owner{Account: "acme", Mode: conversation.Live}

// contents holds the data that a store returns for FixtureOwner.
type contents struct {
	Sessions []sessionContents
	Keys     []keyContents
	Created  conversation.SessionCreated // the response to the repeated request
	Sent     *conversation.Replayed      // the response to the repeated request
	Usage    []string                    // one line for each hour
}

type sessionContents struct {
	Session  conversation.Session
	Messages []conversation.Message
	History  []string // ids of the messages in the context
	Index    []indexedContents
	Summary  conversation.Summary
}

type indexedContents struct {
	ID, Role      string
	Tokens        int
	Skip          bool
	Priority      float64
	Terms, Vector []byte
}

type keyContents struct {
	Key  auth.Key
	Tier string // "" for a revoked key
}

// Contents returns all data of FixtureOwner in a store as indented JSON. It does not change the data.
func Contents(t *testing.T, b Backend) []byte {
	t.Helper()
	s := &subject{ctx: t.Context(), store: b.Conversation, keys: b.Keys, owner: FixtureOwner}
	all := contents{Sessions: s.sessionContents(t), Keys: s.keyContents(t), Usage: s.usageContents(t)}
	var err error
	all.Created, err = s.store.CreateSession(s.ctx, s.owner, conversation.NewSession{Idempotency: request("create", "create")})
	must(t, err, "CreateSession")
	sent, err := s.store.BeginTurn(s.ctx, s.owner, conversation.NewTurn{
		SessionID: all.Created.Session.ID, Idempotency: request("send", "send"), Waiter: "fixture",
	})
	must(t, err, "BeginTurn")
	all.Sent = sent.Replayed
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	must(t, encoder.Encode(all), "JSON")
	return out.Bytes()
}

func (s *subject) sessionContents(t *testing.T) (all []sessionContents) {
	t.Helper()
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 100})
	must(t, err, "Sessions")
	for _, session := range page.Sessions {
		c, err := s.store.Context(s.ctx, s.owner, session.ID, session.Context.MaxTokens)
		must(t, err, "Context")
		read := sessionContents{Session: session, Messages: s.history(t, session.ID), History: ids(c.History), Summary: c.Summary}
		for i := range c.Index {
			x := &c.Index[i]
			terms, _ := x.Terms.AppendBinary(nil) // AppendBinary never fails here
			read.Index = append(read.Index, indexedContents{x.ID, string(x.Role), x.Tokens, x.Skip, x.Priority, terms, x.Vector})
		}
		all = append(all, read)
	}
	return all
}

func (s *subject) keyContents(t *testing.T) (all []keyContents) {
	t.Helper()
	for _, k := range s.allKeys(t, s.keyOwner()) {
		read := keyContents{Key: k}
		if len(k.Secrets) > 0 {
			found, err := s.keys.KeyByHash(s.ctx, k.Secrets[0].Hash)
			must(t, err, "KeyByHash")
			read.Tier = string(found.Tier)
		}
		all = append(all, read)
	}
	return all
}

func (s *subject) usageContents(t *testing.T) (all []string) {
	t.Helper()
	used, err := s.store.Usage(s.ctx, s.owner, 0, 1<<30)
	must(t, err, "Usage")
	for i := range used.Hours {
		hour, counts := &used.Hours[i], map[usage.Field]int64{}
		for field, n := range hour.Bucket.All() {
			counts[field] = n
		}
		all = append(all, fmt.Sprintf("hour %d: %v, existing %d", hour.Hour, counts, hour.Existing))
	}
	return all
}
