package auth

import (
	"context"
	"errors"
	"testing"
)

// FuzzVerify calls Verify with any text. Verify must accept only the secret of the one key in the store.
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
			t.Fatalf("Verify of %q returned %+v, %v", secret, p, err)
		}
		if wellFormed(secret) && modeOf(secret) == "" {
			t.Fatalf("%q is well formed but has no mode", secret)
		}
	})
}

// FuzzRedeem calls Redeem with any text. The Tickets value under test has issued no ticket, so Redeem must refuse every
// text.
func FuzzRedeem(f *testing.F) {
	tickets := newTickets(f, NewTicketMemory())
	foreign, _ := newTickets(f, NewTicketMemory()).Issue(context.Background(), Principal{Account: "a"})
	for _, seed := range []string{"", ".", "e30.", foreign} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := tickets.Redeem(t.Context(), text); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("Redeem of %q returned %+v, %v; want %v", text, p, err, ErrInvalidToken)
		}
	})
}
