package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWellFormed_OneWrongCharacter_ReturnsFalse(t *testing.T) {
	seen := map[string]bool{}
	for _, mode := range []string{"live", "test"} {
		for range 100 {
			secret := NewSecret(mode)
			if !wellFormed(secret) || modeOf(secret) != mode || seen[secret] {
				t.Fatalf("%s is not a new, well-formed %s secret", secret, mode)
			}
			seen[secret] = true
			for i := range secret {
				if wrong := secret[:i] + string(otherCharacter(secret[i])) + secret[i+1:]; wellFormed(wrong) {
					t.Fatalf("%s is well formed, although character %d is wrong", wrong, i)
				}
			}
		}
	}
}

// otherCharacter returns a character that is not c.
func otherCharacter(c byte) byte {
	if c == 'x' {
		return 'y'
	}
	return 'x'
}

func newTickets(t testing.TB, store TicketStore) *Tickets {
	t.Helper()
	tickets, err := NewTickets(context.Background(), store)
	if err != nil {
		t.Fatal(err)
	}
	return tickets
}

func TestTicket_RedeemedOnlyOnceWithinLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewTicketMemory()
		tickets := newTickets(t, memory)
		p := Principal{Account: "a", Mode: "live", KeyID: "key_1", Scopes: []Scope{ReadMessages}, SessionID: "session_x"}
		text, expires := tickets.Issue(context.Background(), p)
		if expires != time.Now().Add(TicketLifetime) {
			t.Errorf("the ticket expires at %v, want %v from now", expires, TicketLifetime)
		}
		got, err := tickets.Redeem(t.Context(), text)
		if err != nil || got.SessionID != "session_x" || !got.MayAccess("session_x") || got.MayAccess("session_y") || got.Has(WriteMessages) {
			t.Fatalf("Redeem returned %+v, %v; want the principal of the ticket", got, err)
		}
		if _, err := tickets.Redeem(t.Context(), text); !errors.Is(err, ErrInvalidToken) {
			t.Error("Redeem accepted a ticket twice")
		}
		if sealed, err := base64.RawURLEncoding.DecodeString(text); err != nil || bytes.Contains(sealed, []byte("key_1")) || bytes.Contains(sealed, []byte("session_x")) {
			t.Errorf("the ticket is not encrypted: %q, %v", sealed, err)
		}
		late, _ := tickets.Issue(context.Background(), p)
		time.Sleep(TicketLifetime)
		if _, err := tickets.Redeem(t.Context(), late); !errors.Is(err, ErrInvalidToken) {
			t.Error("Redeem accepted an expired ticket")
		}
		foreign, _ := newTickets(t, NewTicketMemory()).Issue(context.Background(), p)
		good, _ := tickets.Issue(context.Background(), p)
		for _, bad := range []string{"", ".", "x.y", foreign, good + "x", good[1:], good[:len(good)/2]} {
			if _, err := tickets.Redeem(t.Context(), bad); !errors.Is(err, ErrInvalidToken) {
				t.Errorf("Redeem accepted %q", bad)
			}
		}
		for range 100 { // the store must remove used tickets that have expired
			more, _ := tickets.Issue(context.Background(), p)
			if _, err := tickets.Redeem(t.Context(), more); err != nil {
				t.Fatal(err)
			}
			time.Sleep(TicketLifetime)
		}
		if n := len(memory.used); n > 3 {
			t.Errorf("%d used tickets are in memory, want at most 3", n)
		}
	})
}

// replaceableKey is a TicketStore with a key that a test can replace.
type replaceableKey struct{ *TicketMemory }

func (f *replaceableKey) TicketKey(context.Context) (TicketKey, error) { return f.key, nil }

func TestTickets_StoreReplacesKey_OldProcessesUseNewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &replaceableKey{NewTicketMemory()}
		a, b := newTickets(t, store), newTickets(t, store)
		p := Principal{Account: "a", Mode: "live"}
		time.Sleep(keyAgain)
		store.key = NewTicketKey()
		restarted := newTickets(t, store)
		text, _ := restarted.Issue(t.Context(), p)
		if _, err := a.Redeem(t.Context(), text); err != nil {
			t.Errorf("a running node refused a ticket of a restarted node: %v", err)
		}
		time.Sleep(keyFresh)
		text, _ = b.Issue(t.Context(), p)
		if _, err := restarted.Redeem(t.Context(), text); err != nil {
			t.Errorf("a restarted node refused a ticket that a running node issued %v later: %v", keyFresh, err)
		}
	})
}
