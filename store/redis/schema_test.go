package redis

import (
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
)

// TestSchema_EachKey_ExpiresAsListed uses API keys, tickets, sockets and limits. Then each key in Redis must be of a kind that
// schema.go lists, and must expire as schema.go says.
func TestSchema_EachKey_ExpiresAsListed(t *testing.T) {
	s := newStore(t)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Test}
	key := aKey(owner)
	key.ExpiresAt = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	_, err := s.CreateKey(t.Context(), key, "")
	must(t, err)
	rotated, err := s.RotateKey(t.Context(), owner, key.ID, aKey(owner).Secrets[0].Hash, "svc_test_cd", auth.CLI)
	must(t, err)
	_, err = admit(t, s, auth.Principal{Account: owner.Account, Mode: owner.Mode, KeyID: key.ID, Secret: key.Secrets[0].Hash})
	must(t, err)
	_, err = openSocket(t, s, owner, 1)
	must(t, err)
	ticket := auth.HashOf(conversation.RandomText(16))
	_, err = s.PutTicket(t.Context(), ticket, auth.Ticket{Secret: key.Secrets[0].Hash})
	must(t, err)

	const never = -time.Nanosecond       // the go-redis client returns this value for a key that never expires
	want := map[string][2]time.Duration{ // kind of key → minimum and maximum time to live
		"account": {never, never}, "key": {never, never}, "ki": {never, never}, "kx": {never, never},
		"requests": {61 * time.Second, 2 * span}, "day": {0, 48 * time.Hour},
		"h": {400 * 24 * time.Hour, 401 * 24 * time.Hour}, "sockets": {time.Second, auth.SocketLease},
		"audit": {auth.AuditLifetime - time.Hour, auth.AuditLifetime + time.Second},
	}
	names, err := s.db.Keys(t.Context(), strings.NewReplacer("{", "\\{").Replace(ownerTag(owner))+":*").Result()
	must(t, err)
	if len(names) != len(want) {
		t.Errorf("there are %d keys, want %d: %q", len(names), len(want), names)
	}
	for _, name := range names {
		kind, _, _ := strings.Cut(strings.TrimPrefix(name, ownerTag(owner)+":"), ":")
		kept, err := s.db.PTTL(t.Context(), name).Result()
		must(t, err)
		if w, known := want[kind]; !known || kept < w[0] || kept > w[1] {
			t.Errorf("a key of kind %s expires in %v, want %v to %v", kind, kept, w[0], w[1])
		}
	}
	kept, err := s.db.PTTL(t.Context(), ticketKey(ticket)).Result()
	must(t, err)
	if kept <= 0 || kept > auth.TicketLifetime {
		t.Errorf("the ticket expires in %v, want %v", kept, auth.TicketLifetime)
	}
	for i, secret := range rotated.Secrets {
		kept, err := s.db.PTTL(t.Context(), pointerKey(secret.Hash)).Result()
		must(t, err)
		if kept <= 59*time.Minute || kept > time.Hour {
			t.Errorf("the pointer of secret %d expires in %v, want an hour, like the API key", i, kept)
		}
	}
}

// span is half of windowKept, after which a rate window expires.
const span = 65 * time.Second

// TestSchema_AccountNameLikeKeyName_OnlyOwnKeysListed uses names of accounts that look like parts of the names of keys in Redis.
func TestSchema_AccountNameLikeKeyName_OnlyOwnKeysListed(t *testing.T) {
	s, base := newStore(t), newAccount()
	names := []string{base, base + ":l}", base + ":l}:key", "{a:" + base + ":l}", base + "%3Al", base + "}", base + " ", base + "+"}
	for _, name := range names {
		owner := auth.Owner{Account: name, Mode: auth.Live}
		newKey(t, s, owner)
		page, err := s.Keys(t.Context(), owner, auth.KeyQuery{Limit: 2})
		must(t, err)
		if len(page.Keys) != 1 || page.Keys[0].Account != name {
			t.Errorf("account %q has the API keys %+v, want one of its own", name, page.Keys)
		}
	}
}
