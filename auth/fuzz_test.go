package auth

import (
	"context"
	"errors"
	"testing"
)

// FuzzVerify presents any text as a key. Only the one valid key must be accepted.
func FuzzVerify(f *testing.F) {
	real := NewSecret("live")
	for _, seed := range []string{"", "svc_live_", real, real + "x", real[:len(real)-1], "svc_test_" + real[9:], "Bearer " + real} {
		f.Add(seed)
	}
	store := &fakeStore{keys: []*Key{{ID: "key_0000000000000000", Secrets: []Secret{{Hash: HashOf(real)}}}}}
	keys := NewKeys(store, Options{})
	f.Cleanup(func() { _ = keys.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, secret string) {
		p, err := keys.Verify(context.Background(), secret)
		if (err == nil) != (secret == real) || err != nil && !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("%q: %+v, %v", secret, p, err)
		}
		if wellFormed(secret) && modeOf(secret) == "" {
			t.Fatalf("%q is well formed but has no mode", secret)
		}
	})
}

// FuzzRedeem presents any text as a ticket. None was issued by these Tickets, so each must be refused.
func FuzzRedeem(f *testing.F) {
	tickets := newTickets(f, NewTicketMemory())
	foreign, _ := newTickets(f, NewTicketMemory()).Issue(context.Background(), Principal{Account: "a"})
	for _, seed := range []string{"", ".", "e30.", foreign} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := tickets.Redeem(t.Context(), text); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("%q: %+v, %v", text, p, err)
		}
	})
}
