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

// FuzzRedeemTicket calls RedeemTicket with any text. The store has tickets, but their texts are not known, so RedeemTicket
// must refuse every text.
func FuzzRedeemTicket(f *testing.F) {
	store := &fakeStore{}
	keys := NewKeys(store, Options{AdminKey: declaredSecret})
	foreign, _, err := NewKeys(&fakeStore{}, Options{}).IssueTicket(context.Background(), Principal{Secret: Hash{1}})
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", ".", "e30.", foreign} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, _, err := keys.IssueTicket(t.Context(), Principal{}); err != nil {
			t.Fatal(err)
		}
		if p, err := keys.RedeemTicket(t.Context(), text); !errors.Is(err, ErrInvalidToken) {
			t.Fatalf("RedeemTicket of %q returned %+v, %v; want %v", text, p, err, ErrInvalidToken)
		}
	})
}
