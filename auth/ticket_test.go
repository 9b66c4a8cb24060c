package auth

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/auth/limit"
)

const declaredSecret = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// issue creates a ticket for the principal of a secret and a session.
func issue(t *testing.T, keys *Keys, secret, session string) string {
	t.Helper()
	p, err := keys.Verify(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	p.SessionID = session
	text, expires, err := keys.IssueTicket(t.Context(), p)
	if left := time.Until(expires); err != nil || left <= 0 || left > TicketLifetime {
		t.Fatalf("IssueTicket: %v, expires in %v; want less than %v", err, left, TicketLifetime)
	}
	return text
}

func wantTicketRefused(t *testing.T, what string, keys *Keys, text string) {
	t.Helper()
	if p, err := keys.RedeemTicket(t.Context(), text); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("%s: RedeemTicket returned %+v, %v; want %v", what, p, err, ErrInvalidToken)
	}
}

func TestTicket_RedeemedOnce_PrincipalOfSecretAndSession(t *testing.T) {
	keys := NewKeys(&fakeStore{}, Options{AdminKey: declaredSecret})
	_, secret := create(t, keys, "acme", Test, NewKey{
		Name: "n", Scopes: []Scope{ReadMessages}, ExpiresAt: time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond),
	})
	for what, secret := range map[string]string{"a key": secret, "the declared key": declaredSecret} {
		want, err := keys.Verify(t.Context(), secret)
		if err != nil {
			t.Fatal(err)
		}
		for _, session := range []string{"", "session_0000000000000000"} {
			text := issue(t, keys, secret, session)
			want.SessionID = session
			got, err := keys.RedeemTicket(t.Context(), text)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: RedeemTicket: %v, principal (-want +got):\n%s", what, err, diff)
			}
			wantTicketRefused(t, what+", a second time", keys, text)
		}
	}
}

func TestTicket_MalformedOrUnknown_Refused(t *testing.T) {
	keys, others := NewKeys(&fakeStore{}, Options{}), NewKeys(&fakeStore{}, Options{})
	_, secret := create(t, keys, "acme", Live, NewKey{Name: "n", Scopes: []Scope{Admin}})
	_, foreign := create(t, others, "acme", Live, NewKey{Name: "n", Scopes: []Scope{Admin}})
	good := issue(t, keys, secret, "")
	for _, bad := range []string{"", ".", good + "x", good[1:], strings.ToUpper(good), issue(t, others, foreign, ""), secret} {
		wantTicketRefused(t, bad, keys, bad)
	}
	if _, err := keys.RedeemTicket(t.Context(), good); err != nil {
		t.Error(err)
	}
}

// TestTicket_SecretNoLongerWorks_Refused creates each ticket while its secret works.
func TestTicket_SecretNoLongerWorks_Refused(t *testing.T) {
	store := &fakeStore{}
	keys := NewKeys(store, Options{AdminKey: declaredSecret})
	revoked, first := create(t, keys, "acme", Live, NewKey{Name: "n", Scopes: []Scope{Admin}})
	rotated, second := create(t, keys, "acme", Live, NewKey{Name: "n", Scopes: []Scope{Admin}})
	ofRevoked, ofRotated := issue(t, keys, first, ""), issue(t, keys, second, "")
	inGrace, ofDeclared, undeclared := issue(t, keys, second, ""), issue(t, keys, declaredSecret, ""), issue(t, keys, declaredSecret, "")
	if err := keys.RevokeFor(t.Context(), revoked.Owner, revoked.ID); err != nil {
		t.Fatal(err)
	}
	wantTicketRefused(t, "a revoked key", keys, ofRevoked)
	rotate := func() {
		if _, _, err := keys.RotateFor(t.Context(), rotated.Owner, rotated.ID); err != nil {
			t.Fatal(err)
		}
	}
	rotate()
	if p, err := keys.RedeemTicket(t.Context(), inGrace); err != nil || p.DeprecatedSince.IsZero() || p.Until.IsZero() {
		t.Errorf("the previous secret: %+v, %v; want a principal that ends after the grace period", p, err)
	}
	rotate()
	wantTicketRefused(t, "a secret two rotations old", keys, ofRotated)
	wantTicketRefused(t, "another declared key", NewKeys(store, Options{AdminKey: declaredSecret + "x"}), ofDeclared)
	wantTicketRefused(t, "no declared key", NewKeys(store, Options{}), undeclared)
}

// TestTicket_TierChanged_PrincipalHasNewTier checks that the tier comes from the record of the account, not from the ticket.
func TestTicket_TierChanged_PrincipalHasNewTier(t *testing.T) {
	keys := NewKeys(&fakeStore{}, Options{})
	_, secret := create(t, keys, "acme", Live, NewKey{Name: "n", Scopes: []Scope{Admin}})
	text := issue(t, keys, secret, "")
	if _, _, err := keys.CreateFor(t.Context(), Owner{"acme", Live}, NewKey{Name: "n", Scopes: []Scope{Admin}}, limit.Pro); err != nil {
		t.Fatal(err)
	}
	if p, err := keys.RedeemTicket(t.Context(), text); err != nil || p.Tier != limit.Pro {
		t.Errorf("RedeemTicket returned %+v, %v; want the tier %s", p, err, limit.Pro)
	}
}

// TestTicket_CopyOfStore_OpensNothing uses each text in a copy of the store as a ticket.
func TestTicket_CopyOfStore_OpensNothing(t *testing.T) {
	store := &fakeStore{}
	keys := NewKeys(store, Options{AdminKey: declaredSecret})
	text := issue(t, keys, declaredSecret, "session_0000000000000000")
	dump, err := json.Marshal(store.tickets)
	if err != nil {
		t.Fatal(err)
	}
	id := keys.declared.KeyID
	hash, _ := keys.declaredHash.MarshalText()
	for _, secret := range []string{text, string(hash), id} {
		if strings.Contains(string(dump), secret) {
			t.Errorf("the store contains %q: %s", secret, dump)
		}
	}
	for _, word := range strings.FieldsFunc(string(dump), func(r rune) bool { return strings.ContainsRune(`{}":,`, r) }) {
		wantTicketRefused(t, "a word of the store", keys, word)
		if len(word) > ticketLength {
			wantTicketRefused(t, "a part of a word of the store", keys, word[:ticketLength])
		}
	}
}
