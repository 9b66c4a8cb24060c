package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a store of keys that counts what it is asked.
type shelf struct {
	keys  map[[32]byte]Key
	asked int
	err   error
}

func (s *shelf) KeyByHash(_ context.Context, hash [32]byte) (Key, error) {
	s.asked++
	if s.err != nil {
		return Key{}, s.err
	}
	key, ok := s.keys[hash]
	if !ok {
		return Key{}, ErrInvalidToken
	}
	return key, nil
}

func (s *shelf) CreateFirstKey(_ context.Context, key Key) (bool, error) {
	if len(s.keys) > 0 {
		return false, nil
	}
	s.keys = map[[32]byte]Key{key.Hash: key}
	return true, nil
}

func TestASecretSaysItsModeAndChecksItself(t *testing.T) {
	seen := map[string]bool{}
	for _, mode := range []string{"live", "test"} {
		for range 100 {
			secret := NewSecret(mode)
			if !wellFormed(secret) || modeOf(secret) != mode || seen[secret] {
				t.Fatalf("%s is no good %s secret", secret, mode)
			}
			seen[secret] = true
			for i := range secret {
				if wrong := secret[:i] + string(flip(secret[i])) + secret[i+1:]; wellFormed(wrong) {
					t.Fatalf("a typing error at %d is not noticed", i)
				}
			}
		}
	}
}

func flip(c byte) byte {
	if c == 'x' {
		return 'y'
	}
	return 'x'
}

func TestTheFirstKeyIsMadeOnceAndWorks(t *testing.T) {
	keys := NewKeys(&shelf{}, "")
	secret, err := keys.CreateFirst(context.Background())
	if err != nil || secret == "" {
		t.Fatal(secret, err)
	}
	if again, err := keys.CreateFirst(context.Background()); err != nil || again != "" {
		t.Fatal("a second first key was made", err)
	}
	p, err := keys.Verify(context.Background(), secret)
	if err != nil || p.Account != DefaultAccount || p.Mode != "live" || !p.Has(WriteMessages) || !p.Has(Admin) {
		t.Fatalf("%+v, %v", p, err)
	}
}

func TestAMistypedKeyIsRefusedWithoutALookUp(t *testing.T) {
	store := &shelf{}
	keys := NewKeys(store, "")
	for _, secret := range []string{"", "x", "svc_live_", "svc_live_" + strings.Repeat("a", 33), NewSecret("live") + "x", strings.ToUpper(NewSecret("live"))} {
		if _, err := keys.Verify(context.Background(), secret); !errors.Is(err, ErrInvalidToken) {
			t.Errorf("%q: %v", secret, err)
		}
	}
	if store.asked != 0 {
		t.Errorf("the store was asked %d times", store.asked)
	}
	if _, err := keys.Verify(context.Background(), NewSecret("live")); !errors.Is(err, ErrInvalidToken) || store.asked != 1 {
		t.Errorf("an unknown key: %v, asked %d", err, store.asked)
	}
}

func TestAStoreThatIsAwayIsNotAnInvalidKey(t *testing.T) {
	away := errors.New("away")
	store := &shelf{err: away}
	keys := NewKeys(store, "")
	if _, err := keys.Verify(context.Background(), NewSecret("live")); !errors.Is(err, away) || errors.Is(err, ErrInvalidToken) {
		t.Fatal(err)
	}
}

func TestADeclaredKeyNeedsNoChecksum(t *testing.T) {
	declared := "svc_live_" + strings.Repeat("x", 23)
	if err := CheckDeclared(declared); err != nil {
		t.Fatal(err)
	}
	p, err := NewKeys(&shelf{}, declared).Verify(context.Background(), declared)
	if err != nil || !p.Has(Admin) {
		t.Fatal(p, err)
	}
	for _, bad := range []string{"svc_live_" + strings.Repeat("x", 22), "svc_test_" + strings.Repeat("x", 40), "svc_live_" + strings.Repeat("ä", 40), "svc_live_ " + strings.Repeat("x", 40)} {
		if CheckDeclared(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestATicketWorksOnceAndForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tickets := NewTickets()
		p := Principal{Account: "a", Mode: "live", KeyID: "key_1", Scopes: []Scope{ReadMessages}, SessionID: "session_x"}
		text, expires := tickets.Issue(p)
		if expires != time.Now().Add(TicketLifetime) {
			t.Errorf("expires %v", expires)
		}
		got, err := tickets.Redeem(text)
		if err != nil || got.SessionID != "session_x" || !got.May("session_x") || got.May("session_y") || got.Has(WriteMessages) {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := tickets.Redeem(text); !errors.Is(err, ErrInvalidToken) {
			t.Error("redeemed twice")
		}
		late, _ := tickets.Issue(p)
		time.Sleep(TicketLifetime)
		if _, err := tickets.Redeem(late); !errors.Is(err, ErrInvalidToken) {
			t.Error("redeemed after its time")
		}
		foreign, _ := NewTickets().Issue(p)
		good, _ := tickets.Issue(p)
		for _, bad := range []string{"", ".", "x.y", foreign, good + "x", good[1:], strings.Replace(good, ".", "", 1)} {
			if _, err := tickets.Redeem(bad); !errors.Is(err, ErrInvalidToken) {
				t.Errorf("%q was redeemed", bad)
			}
		}
		for range 100 { // what is remembered does not grow
			more, _ := tickets.Issue(p)
			if _, err := tickets.Redeem(more); err != nil {
				t.Fatal(err)
			}
			time.Sleep(TicketLifetime)
		}
		if n := len(tickets.redeemed); n > 3 {
			t.Errorf("%d tickets are remembered", n)
		}
	})
}
