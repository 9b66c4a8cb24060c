package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth/limit"
)

// fakeStore is a Store in memory.
type fakeStore struct {
	mu      sync.Mutex
	keys    []*Key // guarded by mu, like all fields below
	tiers   map[string]limit.Tier
	lookUps int        // number of calls of KeyByHash
	touched [][]KeyUse // the batches that TouchKeys got
	err     error      // most methods return this error; nil means no error
	reading func()     // KeyByHash calls reading after it has read the keys; nil means no call
	tickets map[Hash]Ticket
	frames  limit.Window // the frames of all keys together
	leases  int          // number of calls of TakeFrames
}

func (s *fakeStore) PutTicket(_ context.Context, hash Hash, ticket Ticket) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tickets == nil {
		s.tickets = make(map[Hash]Ticket)
	}
	s.tickets[hash] = ticket
	return time.Now().Add(TicketLifetime), s.err
}

func (s *fakeStore) TakeTicket(_ context.Context, hash Hash) (Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ticket, ok := s.tickets[hash]
	delete(s.tickets, hash)
	if s.err != nil || ok {
		return ticket, s.err
	}
	return Ticket{}, ErrInvalidToken
}

func (s *fakeStore) KeyByHash(_ context.Context, hash Hash) (KeyMatch, error) {
	s.mu.Lock()
	reading := s.reading
	s.lookUps++
	found, err := KeyMatch{}, s.err
	if err == nil {
		err = ErrInvalidToken
		for _, key := range s.keys {
			if i, ok := key.FindSecret(hash, time.Now()); ok {
				found, err = KeyMatch{Key: *key, Tier: s.tiers[key.Account], Secret: i}, nil
			}
		}
	}
	s.mu.Unlock()
	if reading != nil {
		reading()
	}
	return found, err
}

func (s *fakeStore) KeyAlive(ctx context.Context, p Principal) error {
	_, err := s.KeyByHash(ctx, p.Secret)
	return err
}

func (s *fakeStore) Admit(context.Context) error { return errors.ErrUnsupported }

func (s *fakeStore) UserUse(context.Context, Owner, string) (limit.UserUse, error) {
	return limit.UserUse{}, errors.ErrUnsupported
}

// TakeFrames grants leases from one window, without other nodes. It fails while the store fails.
func (s *fakeStore) TakeFrames(_ context.Context, _ Owner, _ string, take limit.FrameTake) (limit.FrameLease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases++
	if s.err != nil {
		return limit.FrameLease{}, s.err
	}
	return s.frames.Lease(time.Now(), take), nil
}

func (s *fakeStore) OpenSocket(context.Context, Owner) (func(), error) {
	return nil, errors.ErrUnsupported
}

func (s *fakeStore) CreateKey(_ context.Context, key Key, tier limit.Tier) (Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key.CreatedAt = time.Now().UTC()
	s.keys = append(s.keys, &key)
	if s.tiers == nil {
		s.tiers = make(map[string]limit.Tier)
	}
	if s.tiers[key.Account] == "" || tier != "" {
		s.tiers[key.Account] = tier
	}
	return key, s.err
}

func (s *fakeStore) CreateFirstKey(ctx context.Context, key Key) (bool, error) {
	if len(s.keys) > 0 {
		return false, nil
	}
	_, err := s.CreateKey(ctx, key, "")
	return err == nil, err
}

func (s *fakeStore) Keys(context.Context, Owner, KeyQuery) (KeyPage, error) {
	return KeyPage{}, errors.ErrUnsupported
}

func (s *fakeStore) Audit(context.Context, Owner, AuditQuery) (AuditPage, error) {
	return AuditPage{}, errors.ErrUnsupported
}

func (s *fakeStore) find(owner Owner, id string) (*Key, error) {
	i := slices.IndexFunc(s.keys, func(k *Key) bool { return k.Owner == owner && k.ID == id && !k.Revoked })
	if i < 0 {
		return nil, ErrKeyNotFound
	}
	return s.keys[i], s.err
}

func (s *fakeStore) RevokeKey(_ context.Context, owner Owner, id, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.find(owner, id)
	if err == nil {
		key.Revoke()
	}
	return err
}

func (s *fakeStore) RotateKey(_ context.Context, owner Owner, id string, secret Hash, prefix, _ string) (Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, err := s.find(owner, id)
	if err != nil {
		return Key{}, err
	}
	key.Rotate(secret, prefix, time.Now())
	return *key, nil
}

func (s *fakeStore) TouchKeys(_ context.Context, uses []KeyUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.touched = append(s.touched, uses)
	}
	return s.err
}

// writes returns the batches that TouchKeys got.
func (s *fakeStore) writes() [][]KeyUse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.touched)
}

func (s *fakeStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// create creates a key. The account gets the tier Enterprise.
func create(t *testing.T, keys *Keys, account, mode string, wanted NewKey) (Key, string) {
	t.Helper()
	key, secret, err := keys.CreateFor(t.Context(), Owner{account, mode}, wanted, limit.Enterprise)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret
}

// wantVerified calls Verify. It fails the test unless Verify returns a principal of the key keyID, or ErrInvalidToken if
// keyID is "". what describes the secret.
func wantVerified(t *testing.T, what string, keys *Keys, secret, keyID string) Principal {
	t.Helper()
	p, err := keys.Verify(context.Background(), secret)
	if p.KeyID != keyID || (err == nil) != (keyID != "") || err != nil && !errors.Is(err, ErrInvalidToken) {
		t.Errorf("%s: got key %q, %v; want %q", what, p.KeyID, err, keyID)
	}
	return p
}

func TestCreateFirst_Twice_CreatesOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := NewKeys(&fakeStore{}, Options{})
		secret, err := keys.CreateFirst(context.Background())
		if err != nil || secret == "" {
			t.Fatal(secret, err)
		}
		if again, err := keys.CreateFirst(context.Background()); err != nil || again != "" {
			t.Fatalf("the second call returned the secret %q, %v; want none", again, err)
		}
		p, err := keys.Verify(context.Background(), secret)
		if err != nil || p.Account != DefaultAccount || p.Mode != Live || p.Tier != limit.Pro || !p.Has(WriteMessages) || !p.Has(Admin) {
			t.Fatalf("Verify returned %+v, %v; want an admin key of the default account", p, err)
		}
	})
}

func TestVerify_MistypedKey_RefusedWithoutLookUp(t *testing.T) {
	store := &fakeStore{}
	keys := NewKeys(store, Options{})
	for _, secret := range []string{"", "x", "svc_live_", "svc_live_" + strings.Repeat("a", 33), NewSecret("live") + "x", strings.ToUpper(NewSecret("live"))} {
		wantVerified(t, secret, keys, secret, "")
	}
	if store.lookUps != 0 {
		t.Errorf("the store got %d look-ups of mistyped keys, want 0", store.lookUps)
	}
	wantVerified(t, "an unknown key", keys, NewSecret("live"), "")
	if store.lookUps != 1 {
		t.Errorf("the store got %d look-ups of an unknown key, want 1", store.lookUps)
	}
}

func TestVerify_StoreFails_ReturnsErrorOfStore(t *testing.T) {
	unreachable := errors.New("unreachable")
	keys := NewKeys(&fakeStore{err: unreachable}, Options{})
	if _, err := keys.Verify(context.Background(), NewSecret("live")); !errors.Is(err, unreachable) || errors.Is(err, ErrInvalidToken) {
		t.Fatalf("Verify returned %v, want %v", err, unreachable)
	}
	if err := keys.Revalidate(context.Background(), Principal{Secret: Hash{1}}); !errors.Is(err, unreachable) || errors.Is(err, ErrInvalidToken) {
		t.Fatalf("Revalidate returned %v, want %v", err, unreachable)
	}
}

func TestDeclaredKey_WithoutChecksum_AcceptedWithStableID(t *testing.T) {
	declared := "svc_live_chosen-by-the-operator"
	declared += strings.Repeat("!", 32-len(declared))
	if err := CheckDeclared(declared); err != nil {
		t.Fatal(err)
	}
	keys := NewKeys(&fakeStore{}, Options{AdminKey: declared, Tier: limit.Free})
	p, err := keys.Verify(context.Background(), declared)
	if err != nil || !p.Has(Admin) || p.Tier != limit.Free || p.Secret != (Hash{}) {
		t.Fatal(p, err)
	}
	if err := keys.Revalidate(context.Background(), p); err != nil {
		t.Error(err)
	}
	again, _ := NewKeys(&fakeStore{}, Options{AdminKey: declared}).Verify(context.Background(), declared)
	other, _ := NewKeys(&fakeStore{}, Options{AdminKey: declared + "x"}).Verify(context.Background(), declared+"x")
	if again.KeyID != p.KeyID || other.KeyID == p.KeyID || len(p.KeyID) != len(KeyPrefix)+16 {
		t.Errorf("the id is %s, after a restart %s, of another declared key %s; want the same, the same, another",
			p.KeyID, again.KeyID, other.KeyID)
	}
	none := NewKeys(&fakeStore{}, Options{})
	if err := none.Revalidate(context.Background(), p); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("Revalidate of a key that is no longer declared: got %v, want %v", err, ErrInvalidToken)
	}
	if err := none.Revalidate(context.Background(), Principal{}); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("Revalidate of an empty principal: got %v, want %v", err, ErrInvalidToken)
	}
	if err := keys.Revoke(context.Background(), p, p.KeyID); !errors.Is(err, ErrKeyNotFound) {
		t.Errorf("Revoke of the declared key: got %v, want %v", err, ErrKeyNotFound)
	}
}

func TestCheckDeclared_WeakOrMalformed_Refused(t *testing.T) {
	random := strings.Repeat("0123456789abcdef", 3)
	for what, bad := range map[string]string{
		"31 characters":          "svc_live_" + random[:22],
		"the prefix of test":     "svc_test_" + random,
		"not ASCII":              "svc_live_" + random + "ä",
		"a space":                "svc_live_ " + random,
		"32 equal characters":    "svc_live_" + strings.Repeat("x", 32),
		"7 different characters": "svc_live_" + strings.Repeat("abcdefg", 5),
	} {
		if CheckDeclared(bad) == nil {
			t.Errorf("%s: CheckDeclared accepted %q", what, bad)
		}
	}
	for _, good := range []string{"svc_live_" + random[:23], "svc_live_" + strings.Repeat("abcdefgh", 3), NewSecret(Live)} {
		if err := CheckDeclared(good); err != nil {
			t.Errorf("CheckDeclared of %q: %v", good, err)
		}
	}
}

func TestCreate_ScopeThatMakerLacks_Refused(t *testing.T) {
	keys := NewKeys(&fakeStore{}, Options{})
	maker := Principal{Account: "a", Mode: Test, Scopes: []Scope{ReadSessions, ReadMessages}}
	key, secret, err := keys.Create(t.Context(), maker, NewKey{Name: "n", Scopes: []Scope{ReadMessages}})
	if err != nil || key.Owner != maker.Owner() || modeOf(secret) != Test || !strings.HasPrefix(secret, key.Prefix) || len(key.Prefix) > 15 {
		t.Errorf("Create returned %+v, %v; want a key of the maker's owner", key, err)
	}
	for _, scope := range []Scope{WriteMessages, Admin} {
		if _, _, err := keys.Create(t.Context(), maker, NewKey{Name: "n", Scopes: []Scope{ReadMessages, scope}}); !errors.Is(err, ErrScopeNotHeld) {
			t.Errorf("Create with the scope %s: got %v, want %v", scope, err, ErrScopeNotHeld)
		}
	}
	maker.Scopes = []Scope{Admin}
	if _, _, err := keys.Create(t.Context(), maker, NewKey{Name: "n", Scopes: allScopes}); err != nil {
		t.Errorf("Create with all scopes by an admin key: got %v", err)
	}
}

func TestCreate_CreatedBy_NamesMaker(t *testing.T) {
	store := &fakeStore{}
	secret := "svc_live_" + strings.Repeat("declared", 4)
	keys := NewKeys(store, Options{AdminKey: secret})
	if _, err := keys.CreateFirst(t.Context()); err != nil || store.keys[0].CreatedBy != CLI {
		t.Errorf("the first key is %+v, error %v", store.keys[0], err)
	}
	declared, err := keys.Verify(t.Context(), secret)
	if err != nil {
		t.Fatal(err)
	}
	operators, _ := create(t, keys, "a", Live, NewKey{Scopes: []Scope{Admin}})
	other := Principal{Account: "a", Mode: Live, KeyID: operators.ID, Scopes: []Scope{Admin}, Secret: Hash{1}}
	for want, maker := range map[string]Principal{Declared: declared, operators.ID: other} {
		if key, _, err := keys.Create(t.Context(), maker, NewKey{Scopes: []Scope{Admin}}); err != nil || key.CreatedBy != want {
			t.Errorf("the key is %+v, error %v; want createdBy %s", key, err, want)
		}
	}
	if operators.CreatedBy != CLI {
		t.Errorf("the operator's key is %+v, want createdBy %s", operators, CLI)
	}
}

func TestVerify_RevokedOrRotatedTwice_RefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := NewKeys(&fakeStore{}, Options{})
		key, first := create(t, keys, "a", Live, NewKey{})
		if p := wantVerified(t, "a new key", keys, first, key.ID); p.Tier != limit.Enterprise || !p.DeprecatedSince.IsZero() {
			t.Errorf("the principal of a new key is %+v, want Enterprise and not deprecated", p)
		}
		rotatedAt := time.Now()
		_, second, err := keys.RotateFor(t.Context(), key.Owner, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		if p := wantVerified(t, "the rotated secret", keys, first, key.ID); !p.DeprecatedSince.Equal(rotatedAt) {
			t.Errorf("the old secret is deprecated since %v, want %v", p.DeprecatedSince, rotatedAt)
		}
		if p := wantVerified(t, "the new secret", keys, second, key.ID); !p.DeprecatedSince.IsZero() {
			t.Errorf("the principal of the new secret is %+v, want not deprecated", p)
		}
		_, third, err := keys.RotateFor(t.Context(), key.Owner, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantVerified(t, "the oldest secret", keys, first, "")
		p := wantVerified(t, "the second secret", keys, second, key.ID)
		wantVerified(t, "the newest secret", keys, third, key.ID)
		if err := keys.Revalidate(t.Context(), p); err != nil {
			t.Error(err)
		}
		if err := keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		wantVerified(t, "the second secret of a revoked key", keys, second, "")
		wantVerified(t, "the newest secret of a revoked key", keys, third, "")
		if err := keys.Revalidate(t.Context(), p); !errors.Is(err, ErrInvalidToken) {
			t.Errorf("Revalidate of a revoked key: got %v, want %v", err, ErrInvalidToken)
		}
		_ = keys.Close(t.Context())
	})
}

func TestVerify_SecretExpires_RefusedFromThatMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := NewKeys(&fakeStore{}, Options{})
		expiring, secret := create(t, keys, "a", Live, NewKey{ExpiresAt: time.Now().Add(time.Hour)})
		rotated, first := create(t, keys, "a", Live, NewKey{})
		if _, _, err := keys.RotateFor(t.Context(), rotated.Owner, rotated.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Millisecond)
		wantVerified(t, "a key 1 ms before its expiry", keys, secret, expiring.ID)
		time.Sleep(time.Millisecond) // the cached look-up is still fresh
		wantVerified(t, "a key at its expiry", keys, secret, "")
		time.Sleep(23*time.Hour - time.Millisecond)
		wantVerified(t, "the previous secret 1 ms before the end of the grace period", keys, first, rotated.ID)
		time.Sleep(time.Millisecond)
		wantVerified(t, "the previous secret at the end of the grace period", keys, first, "")
		_ = keys.Close(t.Context())
	})
}

func TestVerify_RevokedByOtherProcess_RefusedAfter5s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		here, there := NewKeys(store, Options{}), NewKeys(store, Options{})
		key, secret := create(t, here, "a", Live, NewKey{})
		for range 1000 {
			wantVerified(t, "a key", here, secret, key.ID)
		}
		if store.lookUps != 1 {
			t.Errorf("1000 calls of Verify within 5 s made %d look-ups, want 1", store.lookUps)
		}
		if err := there.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fresh)
		wantVerified(t, "a key that another process revoked", here, secret, "")
		_ = here.Close(t.Context())
	})
}

func TestVerify_RevokedDuringLookUp_NotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		keys := NewKeys(store, Options{})
		key, secret := create(t, keys, "a", Live, NewKey{})
		store.reading = func() {
			store.reading = nil
			if err := keys.RevokeFor(t.Context(), key.Owner, key.ID); err != nil {
				t.Error(err)
			}
		}
		wantVerified(t, "a request before the revocation", keys, secret, key.ID)
		wantVerified(t, "a request after the revocation", keys, secret, "")
		_ = keys.Close(t.Context())
	})
}

func TestCache_TooManySecrets_EvictsEntries(t *testing.T) {
	var c cache
	for i := range maxCached + 100 {
		c.put(Hash{byte(i), byte(i >> 8), byte(i >> 16)}, verified{at: time.Now()}, 0)
	}
	if n := len(c.seen); n != maxCached {
		t.Errorf("the cache has %d entries, want %d", n, maxCached)
	}
}

func TestLastUsed_WrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		keys := NewKeys(store, Options{})
		a, secretA := create(t, keys, "a", Live, NewKey{})
		_, secretB := create(t, keys, "b", Live, NewKey{})
		for range 100 {
			wantVerified(t, "a key", keys, secretA, a.ID)
			time.Sleep(time.Millisecond)
		}
		last := time.Now()
		wantVerified(t, "a key", keys, secretA, a.ID)
		if len(store.writes()) != 0 {
			t.Error("the time of use was written within a second after the use")
		}
		time.Sleep(touchEvery)
		synctest.Wait()
		want := []KeyUse{{Owner: a.Owner, KeyID: a.ID, At: last.UTC().Truncate(time.Millisecond)}}
		if len(store.writes()) != 1 || !slices.Equal(store.writes()[0], want) {
			t.Errorf("the store got the batches %v, want only %v", store.writes(), want)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(store.writes()) != 1 {
			t.Errorf("the store got the batches %v although no key was used", store.writes()[1:])
		}

		store.fail(errors.New("unreachable"))
		_ = keys.Revalidate(t.Context(), Principal{}) // is not a use of a key
		keys.uses.note(a.Owner, a.ID, time.Now())
		time.Sleep(touchEvery)
		synctest.Wait()
		store.fail(nil)
		if _, err := keys.Verify(t.Context(), secretB); err != nil {
			t.Fatal(err)
		}
		if err := keys.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(store.writes()) != 2 || len(store.writes()[1]) != 2 {
			t.Errorf("after a failed write, Close wrote %v, want the times of both keys", store.writes()[1:])
		}
	})
}

func TestChecks_InvalidFields_Refused(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for what, err := range map[string]error{
		"an empty name":                   CheckName(""),
		"a name of 101 characters":        CheckName(strings.Repeat("ä", 101)),
		"a name with a control character": CheckName("a\nb"),
		"an empty list of scopes":         second(ParseScopes(nil)),
		"an unknown scope":                second(ParseScopes([]string{"read:sessions", "read:everything"})),
		"the same scope twice":            second(ParseScopes([]string{"admin", "admin"})),
		"an expiry without a time zone":   second(ParseExpiry("2031-01-01T00:00:00", now)),
		"an expiry without a time of day": second(ParseExpiry("2031-01-01", now)),
		"an empty expiry":                 second(ParseExpiry("", now)),
		"an expiry now":                   second(ParseExpiry("2030-01-01T00:00:00Z", now)),
		"an expiry in the past":           second(ParseExpiry("2030-01-01T00:59:59+01:00", now)),
		"an expiry in the year 10000":     second(ParseExpiry("9999-12-31T23:59:59-01:00", now)),
		"an empty account":                CheckAccount(""),
		"an account with a space":         CheckAccount("a b"),
		"an account of 65 characters":     CheckAccount(strings.Repeat("a", 65)),
	} {
		if err == nil {
			t.Errorf("the check accepted %s", what)
		} else if !strings.HasPrefix(err.Error(), "must ") {
			t.Errorf("the error for %s is %q, and does not begin with must", what, err)
		}
	}
	if err := errors.Join(CheckName(strings.Repeat("ä", 100)), CheckAccount("Acme_1.a-b")); err != nil {
		t.Error(err)
	}
	at, err := ParseExpiry("2030-01-01T01:00:00.0019+01:00", now)
	if err != nil || at != now.Add(time.Millisecond) {
		t.Errorf("ParseExpiry returned %v, %v; want %v", at, err, now.Add(time.Millisecond))
	}
}

// second returns the second result of a call.
func second[T any](_ T, err error) error { return err }

func TestHash_Printed_Hidden(t *testing.T) {
	secret := NewSecret("live")
	hash := HashOf(secret)
	text, _ := hash.MarshalText()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(verb, Key{Secrets: []Secret{{Hash: hash}}}); strings.Contains(printed, string(text)) || strings.Contains(printed, fmt.Sprint(hash[0], " ", hash[1])) {
			t.Errorf("%s prints %s", verb, printed)
		}
	}
	var back Hash
	if err := back.UnmarshalText(text); err != nil || back != hash {
		t.Errorf("MarshalText, then UnmarshalText, returned another hash: %v", err)
	}
	if back.UnmarshalText([]byte("x")) == nil {
		t.Error("UnmarshalText accepted x as a hash")
	}
}
