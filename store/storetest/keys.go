package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

func keyTests() []test {
	return []test{
		{"key is found by the hash of its secret", keyByHash},
		{"unknown hash or id is refused", unknownKey},
		{"first key is created only once", oneFirstKey},
		{"revoked first key is not replaced", noSecondFirstKey},
		{"one of ten concurrent first keys is stored", racingFirstKeys},
		{"tier is free until it is set", tierNamed},
		{"keys are listed newest first", keysInOrder},
		{"pages have no gaps and no repeats", keysInPages},
		{"active keys are limited by the quota", keyQuota},
		{"concurrent creations keep the quota", racingQuota},
		{"record of a key is removed 30 days after its end", endedKeys},
		{"another owner's keys are not found", keysOfOwner},
		{"secret or id in use is refused", keyInUse},
		{"revoked key stays listed", revokedKey},
		{"rotated key has two secrets", rotatedKey},
		{"second rotation keeps the newest two secrets", rotatedTwice},
		{"revoking ends both secrets", revokedAfterRotation},
		{"expired key is refused", expiredKey},
		{"time of last use only increases", touchedKeys},
		{"after concurrent rotations, two secrets work", racingRotations},
		{"one of ten concurrent revocations succeeds", racingRevocations},
	}
}

// keyOwner returns the subject's owner as an auth.Owner.
func (s *subject) keyOwner() auth.Owner { return auth.Owner{Account: s.owner.Account, Mode: auth.Live} }

func newHash() (hash auth.Hash) {
	copy(hash[:], conversation.RandomText(len(hash)))
	return hash
}

func (s *subject) newKey() auth.Key {
	return auth.Key{
		Owner: s.keyOwner(), ID: auth.KeyPrefix + conversation.RandomText(16), Name: "a <key>, näher bezeichnet",
		Scopes: []auth.Scope{auth.ReadSessions, auth.Admin}, Prefix: "svc_live_ab", CreatedBy: auth.CLI,
		Secrets: []auth.Secret{{Hash: newHash()}},
	}
}

// createKey creates a key. The result must equal key, except for the times, which the store sets.
func (s *subject) createKey(t *testing.T, key auth.Key) auth.Key {
	t.Helper()
	created, err := s.keys.CreateKey(s.ctx, key, "")
	must(t, err, "CreateKey")
	if created.CreatedAt.IsZero() || created.CreatedAt.Location() != time.UTC || created.CreatedAt.Nanosecond()%1e6 != 0 {
		t.Errorf("createdAt is %v", created.CreatedAt)
	}
	want := key
	want.CreatedAt = created.CreatedAt
	want.Secrets = []auth.Secret{{Hash: key.Secrets[0].Hash, Since: created.CreatedAt}}
	same(t, "the created key", created, want)
	return created
}

// wantKey checks the result of KeyByHash. The key must be want, and its secret with this hash must have the index i.
func (s *subject) wantKey(t *testing.T, hash auth.Hash, want auth.Key, i int) {
	t.Helper()
	found, err := s.keys.KeyByHash(s.ctx, hash)
	must(t, err, "KeyByHash")
	found.Key.LastUsedAt, want.LastUsedAt = time.Time{}, time.Time{} // only wantKeys compares the times of last use
	same(t, "the result of KeyByHash", found, auth.KeyMatch{Key: want, Tier: limit.Free, Secret: i})
}

func (s *subject) wantNoKey(t *testing.T, what string, hash auth.Hash) {
	t.Helper()
	_, err := s.keys.KeyByHash(s.ctx, hash)
	wantError(t, "KeyByHash of "+what, err, auth.ErrInvalidToken)
}

// keyPages returns all pages of an owner's keys. limit is the KeyQuery.Limit of each page; no page may have more keys.
func (s *subject) keyPages(t *testing.T, owner auth.Owner, limit int) (pages [][]auth.Key) {
	t.Helper()
	query := auth.KeyQuery{Limit: limit}
	for {
		page, err := s.keys.Keys(s.ctx, owner, query)
		must(t, err, "Keys")
		if len(page.Keys) > limit {
			t.Errorf("a page has %d keys, want at most %d", len(page.Keys), limit)
		}
		pages = append(pages, page.Keys)
		if page.Next.IsZero() {
			return pages
		}
		query.Before = page.Next
	}
}

// allKeys returns all keys of an owner. It reads small pages.
func (s *subject) allKeys(t *testing.T, owner auth.Owner) []auth.Key {
	t.Helper()
	return slices.Concat(s.keyPages(t, owner, 5)...)
}

func (s *subject) wantKeys(t *testing.T, owner auth.Owner, want ...auth.Key) {
	t.Helper()
	same(t, "the keys", s.allKeys(t, owner), want)
}

func keyByHash(t *testing.T, s *subject) {
	plain, expiring := s.newKey(), s.newKey()
	expiring.ExpiresAt = conversation.Time(4_000_000_000_123).Go()
	for _, key := range []auth.Key{plain, expiring} {
		created := s.createKey(t, key)
		s.wantKey(t, key.Secrets[0].Hash, created, 0)
	}
}

func unknownKey(t *testing.T, s *subject) {
	s.wantNoKey(t, "one that was never stored", newHash())
	s.wantNoKey(t, "nothing", auth.Hash{})
	s.wantKeys(t, s.keyOwner())
	wantError(t, "RevokeKey", s.keys.RevokeKey(s.ctx, s.keyOwner(), s.newKey().ID, auth.CLI), auth.ErrKeyNotFound)
	_, err := s.keys.RotateKey(s.ctx, s.keyOwner(), s.newKey().ID, newHash(), "svc_live_cd", auth.CLI)
	wantError(t, "RotateKey", err, auth.ErrKeyNotFound)
}

func (s *subject) createFirst(t *testing.T, key auth.Key, want bool) {
	t.Helper()
	created, err := s.keys.CreateFirstKey(s.ctx, key)
	must(t, err, "CreateFirstKey")
	same(t, "whether it was created", created, want)
}

func oneFirstKey(t *testing.T, s *subject) {
	first, second, test, elsewhere := s.newKey(), s.newKey(), s.newKey(), s.newKey()
	test.Mode = auth.Test
	elsewhere.Account += "2"
	s.createFirst(t, first, true)
	s.createFirst(t, second, false)
	s.createFirst(t, first, false)
	s.createFirst(t, test, false)
	s.createFirst(t, elsewhere, true)
	s.wantNoKey(t, "one that was not stored", second.Secrets[0].Hash)
	found, err := s.keys.KeyByHash(s.ctx, first.Secrets[0].Hash)
	must(t, err, "KeyByHash")
	s.wantKeys(t, s.keyOwner(), found.Key) // LastUsedAt must not be set
	same(t, "the id of the first key", found.Key.ID, first.ID)
}

func noSecondFirstKey(t *testing.T, s *subject) {
	first := s.newKey()
	s.createFirst(t, first, true)
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), first.ID, auth.CLI), "RevokeKey")
	s.createFirst(t, s.newKey(), false)
}

func racingFirstKeys(t *testing.T, s *subject) {
	var created atomic.Int32
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			ok, err := s.keys.CreateFirstKey(s.ctx, s.newKey())
			if err != nil {
				t.Errorf("CreateFirstKey: %v", err)
			}
			if ok {
				created.Add(1)
			}
		})
	}
	callers.Wait()
	same(t, "the number of created keys", created.Load(), 1)
}

func tierNamed(t *testing.T, s *subject) {
	first := s.newKey()
	for _, c := range []struct{ name, want limit.Tier }{
		{"", limit.Free}, {limit.Enterprise, limit.Enterprise}, {"", limit.Enterprise}, {limit.Pro, limit.Pro},
	} {
		key := s.newKey()
		if first.CreatedAt.IsZero() {
			key = first
		}
		created, err := s.keys.CreateKey(s.ctx, key, c.name)
		must(t, err, "CreateKey")
		if first.CreatedAt.IsZero() {
			first = created
		}
		for _, hash := range []auth.Hash{first.Secrets[0].Hash, created.Secrets[0].Hash} { // the tier belongs to the account
			found, err := s.keys.KeyByHash(s.ctx, hash)
			must(t, err, "KeyByHash")
			same(t, "the tier", found.Tier, c.want)
		}
	}
}

func keysInOrder(t *testing.T, s *subject) {
	var want []auth.Key
	for range 12 {
		key := s.createKey(t, s.newKey())
		if len(want) > 0 && !key.CreatedAt.After(want[0].CreatedAt) {
			t.Errorf("a key was created at %v, the next at %v", want[0].CreatedAt, key.CreatedAt)
		}
		want = slices.Insert(want, 0, key)
	}
	s.wantKeys(t, s.keyOwner(), want...)
}

func keysInPages(t *testing.T, s *subject) {
	var all []auth.Key
	for range 7 {
		all = slices.Insert(all, 0, s.createKey(t, s.newKey()))
	}
	for limit, want := range map[int][][]auth.Key{
		3: {all[:3], all[3:6], all[6:]}, 6: {all[:6], all[6:]}, 7: {all}, 8: {all}, 100: {all},
	} {
		same(t, "the pages", s.keyPages(t, s.keyOwner(), limit), want)
	}
	first, err := s.keys.Keys(s.ctx, s.keyOwner(), auth.KeyQuery{Limit: 3})
	must(t, err, "Keys")
	s.createKey(t, s.newKey()) // a newer key does not shift the next page
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), all[2].ID, auth.CLI), "RevokeKey")
	second, err := s.keys.Keys(s.ctx, s.keyOwner(), auth.KeyQuery{Before: first.Next, Limit: 3})
	must(t, err, "Keys")
	same(t, "the second page", second.Keys, all[3:6])
}

// createWithin creates a key like a request of an account with a quota of keys.
func (s *subject) createWithin(quota int64, key auth.Key) (auth.Key, error) {
	p := auth.Principal{Account: key.Account, Mode: key.Mode} // the declared key, which always works
	ctx, _ := s.request(p, limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 1, Keys: quota})
	return s.keys.CreateKey(ctx, key, "")
}

func wantQuotaError(t *testing.T, err error, want auth.QuotaError) {
	t.Helper()
	refused, ok := errors.AsType[*auth.QuotaError](err)
	if !ok {
		t.Fatalf("error %v, want %v", err, &want)
	}
	same(t, "the refusal", *refused, want)
}

func keyQuota(t *testing.T, s *subject) {
	full := auth.QuotaError{Quota: limit.QuotaKeys, Used: 3, Limit: 3}
	expired := s.newKey()
	expired.ExpiresAt = time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	s.createKey(t, expired) // does not count
	var keys []auth.Key
	for range 3 {
		key, err := s.createWithin(3, s.newKey())
		must(t, err, "CreateKey")
		keys = append(keys, key)
	}
	_, err := s.keys.RotateKey(s.ctx, s.keyOwner(), keys[0].ID, newHash(), "svc_live_cd", auth.CLI) // creates no key
	must(t, err, "RotateKey")
	extra := s.newKey()
	_, err = s.createWithin(3, extra)
	wantQuotaError(t, err, full)
	s.wantNoKey(t, "the refused key", extra.Secrets[0].Hash)
	same(t, "the number of keys", len(s.allKeys(t, s.keyOwner())), 4)

	test := s.newKey()
	test.Mode = auth.Test
	_, err = s.createWithin(3, test)
	must(t, err, "CreateKey in the other mode")
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), keys[1].ID, auth.CLI), "RevokeKey")
	_, err = s.createWithin(3, extra) // the refusal has stored nothing
	must(t, err, "CreateKey after a revocation")
	_, err = s.createWithin(3, s.newKey())
	wantQuotaError(t, err, full)
	s.createKey(t, s.newKey()) // without an admission, there is no quota
}

func racingQuota(t *testing.T, s *subject) {
	var created atomic.Int32
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			_, err := s.createWithin(3, s.newKey())
			if _, refused := errors.AsType[*auth.QuotaError](err); !refused && err != nil {
				t.Errorf("CreateKey: %v", err)
			}
			if err == nil {
				created.Add(1)
			}
		})
	}
	callers.Wait()
	same(t, "the number of created keys", created.Load(), 3)
}

func endedKeys(t *testing.T, s *subject) {
	endedAt := func(ago time.Duration) auth.Key {
		key := s.newKey()
		key.ExpiresAt = time.Now().Add(-ago).UTC().Truncate(time.Millisecond)
		return s.createKey(t, key)
	}
	kept := s.createKey(t, s.newKey())
	recent := endedAt(auth.EndedKeyLifetime - time.Hour)
	old := endedAt(auth.EndedKeyLifetime + time.Hour)
	s.wantKeys(t, s.keyOwner(), recent, kept) // the list has removed the old key
	wantError(t, "RevokeKey of a removed key", s.keys.RevokeKey(s.ctx, s.keyOwner(), old.ID, auth.CLI), auth.ErrKeyNotFound)
	s.wantNoKey(t, "a removed key", old.Secrets[0].Hash)
	must(t, s.keys.TouchKeys(s.ctx, []auth.KeyUse{{Owner: s.keyOwner(), KeyID: old.ID, At: time.Now()}}), "TouchKeys")

	revoked := endedAt(auth.EndedKeyLifetime + time.Hour)
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), revoked.ID, auth.CLI), "RevokeKey") // the earlier end, the expiry, counts
	again := s.newKey()
	again.ID = old.ID
	again = s.createKey(t, again) // the id is free; CreateKey has removed the revoked key
	wantError(t, "RevokeKey of a removed key", s.keys.RevokeKey(s.ctx, s.keyOwner(), revoked.ID, auth.CLI), auth.ErrKeyNotFound)
	s.wantKeys(t, s.keyOwner(), again, recent, kept)
}

func keysOfOwner(t *testing.T, s *subject) {
	mine := s.createKey(t, s.newKey())
	others := []auth.Owner{
		{Account: mine.Account, Mode: auth.Test}, {Account: mine.Account + "2", Mode: auth.Live},
		{Account: mine.Account[:len(mine.Account)-1], Mode: auth.Live},
	}
	for _, other := range others {
		theirs := s.newKey()
		theirs.Owner = other
		s.wantKeys(t, other)
		theirs = s.createKey(t, theirs)
		s.wantKeys(t, other, theirs)
		wantError(t, "RevokeKey of a foreign key", s.keys.RevokeKey(s.ctx, other, mine.ID, auth.CLI), auth.ErrKeyNotFound)
		_, err := s.keys.RotateKey(s.ctx, other, mine.ID, newHash(), "svc_live_cd", auth.CLI)
		wantError(t, "RotateKey of a foreign key", err, auth.ErrKeyNotFound)
		must(t, s.keys.TouchKeys(s.ctx, []auth.KeyUse{{Owner: other, KeyID: mine.ID, At: time.Now()}}), "TouchKeys of a foreign key")
	}
	s.wantKeys(t, s.keyOwner(), mine)
	s.wantKey(t, mine.Secrets[0].Hash, mine, 0)
}

func keyInUse(t *testing.T, s *subject) {
	first, second := s.createKey(t, s.newKey()), s.createKey(t, s.newKey())
	sameID, sameSecret, foreign := s.newKey(), s.newKey(), s.newKey()
	sameID.ID = first.ID
	sameSecret.Secrets = []auth.Secret{{Hash: first.Secrets[0].Hash}}
	foreign.Secrets, foreign.Account = sameSecret.Secrets, foreign.Account+"2"
	for _, key := range []auth.Key{sameID, sameSecret, foreign} {
		if _, err := s.keys.CreateKey(s.ctx, key, limit.Pro); err == nil {
			t.Error("CreateKey: no error")
		}
	}
	if _, err := s.keys.RotateKey(s.ctx, s.keyOwner(), second.ID, first.Secrets[0].Hash, "svc_live_cd", auth.CLI); err == nil || errors.Is(err, auth.ErrKeyNotFound) {
		t.Errorf("RotateKey to a secret in use: %v", err)
	}
	s.wantKeys(t, s.keyOwner(), second, first)
	s.wantKey(t, first.Secrets[0].Hash, first, 0)
	s.wantKey(t, second.Secrets[0].Hash, second, 0)
	s.createFirst(t, func() auth.Key { k := s.newKey(); k.Account += "2"; return k }(), true) // the failed call must not have created the account
}

func revokedKey(t *testing.T, s *subject) {
	kept, key := s.createKey(t, s.newKey()), s.createKey(t, s.newKey())
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), key.ID, auth.CLI), "RevokeKey")
	s.wantNoKey(t, "a revoked key", key.Secrets[0].Hash)
	key.Revoke()
	s.wantKeys(t, s.keyOwner(), key, kept)
	wantError(t, "RevokeKey again", s.keys.RevokeKey(s.ctx, s.keyOwner(), key.ID, auth.CLI), auth.ErrKeyNotFound)
	_, err := s.keys.RotateKey(s.ctx, s.keyOwner(), key.ID, newHash(), "svc_live_cd", auth.CLI)
	wantError(t, "RotateKey of a revoked key", err, auth.ErrKeyNotFound)
	s.wantKey(t, kept.Secrets[0].Hash, kept, 0)
	s.wantKeys(t, s.keyOwner(), key, kept)
}

// rotate rotates a key and checks the result.
func (s *subject) rotate(t *testing.T, before auth.Key, prefix string) auth.Key {
	t.Helper()
	hash := newHash()
	after, err := s.keys.RotateKey(s.ctx, s.keyOwner(), before.ID, hash, prefix, auth.CLI)
	must(t, err, "RotateKey")
	want := before
	want.Rotate(hash, prefix, after.Secrets[0].Since)
	same(t, "the rotated key", after, want)
	if since := after.Secrets[0].Since; since.Before(before.CreatedAt) || since.Nanosecond()%1e6 != 0 || since.Location() != time.UTC {
		t.Errorf("the new secret is valid since %v", since)
	}
	return after
}

func rotatedKey(t *testing.T, s *subject) {
	key := s.createKey(t, s.newKey())
	rotated := s.rotate(t, key, "svc_live_cd")
	s.wantKey(t, rotated.Secrets[0].Hash, rotated, 0)
	s.wantKey(t, key.Secrets[0].Hash, rotated, 1)
	same(t, "the grace period", rotated.Secrets[1].Until.Sub(rotated.Secrets[0].Since), auth.GracePeriod)
	s.wantKeys(t, s.keyOwner(), rotated)
}

func rotatedTwice(t *testing.T, s *subject) {
	first := s.createKey(t, s.newKey())
	second := s.rotate(t, first, "svc_live_cd")
	third := s.rotate(t, second, "svc_live_ef")
	s.wantNoKey(t, "the oldest secret", first.Secrets[0].Hash)
	s.wantKey(t, second.Secrets[0].Hash, third, 1)
	s.wantKey(t, third.Secrets[0].Hash, third, 0)
}

func revokedAfterRotation(t *testing.T, s *subject) {
	first := s.createKey(t, s.newKey())
	second := s.rotate(t, first, "svc_live_cd")
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), first.ID, auth.CLI), "RevokeKey")
	s.wantNoKey(t, "the previous secret", first.Secrets[0].Hash)
	s.wantNoKey(t, "the newest secret", second.Secrets[0].Hash)
}

func expiredKey(t *testing.T, s *subject) {
	key := s.newKey()
	key.ExpiresAt = time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	key = s.createKey(t, key)
	s.wantNoKey(t, "an expired key", key.Secrets[0].Hash)
	s.wantKeys(t, s.keyOwner(), key)
	_, err := s.keys.RotateKey(s.ctx, s.keyOwner(), key.ID, newHash(), "svc_live_cd", auth.CLI)
	wantError(t, "RotateKey of an expired key", err, auth.ErrKeyNotFound)
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), key.ID, auth.CLI), "RevokeKey of an expired key")
	key.Revoke()
	s.wantKeys(t, s.keyOwner(), key)
}

func touchedKeys(t *testing.T, s *subject) {
	used, unused, revoked := s.createKey(t, s.newKey()), s.createKey(t, s.newKey()), s.createKey(t, s.newKey())
	must(t, s.keys.RevokeKey(s.ctx, s.keyOwner(), revoked.ID, auth.CLI), "RevokeKey")
	revoked.Revoke()
	late, early := conversation.Time(1_800_000_000_123).Go(), conversation.Time(1_800_000_000_000).Go()
	for _, at := range []time.Time{late, early} {
		must(t, s.keys.TouchKeys(s.ctx, []auth.KeyUse{
			{Owner: s.keyOwner(), KeyID: "key_unknown", At: at},
			{Owner: s.keyOwner(), KeyID: used.ID, At: at},
			{Owner: s.keyOwner(), KeyID: revoked.ID, At: at}, // a use before the revocation
		}), "TouchKeys")
	}
	used.LastUsedAt, revoked.LastUsedAt = late, late
	s.wantKeys(t, s.keyOwner(), revoked, unused, used)
	s.wantKey(t, used.Secrets[0].Hash, used, 0)
	must(t, s.keys.TouchKeys(s.ctx, nil), "TouchKeys of nothing")
}

func racingRotations(t *testing.T, s *subject) {
	key := s.createKey(t, s.newKey())
	hashes := []auth.Hash{key.Secrets[0].Hash}
	var callers sync.WaitGroup
	for range 10 {
		hash := newHash()
		hashes = append(hashes, hash)
		callers.Go(func() {
			if _, err := s.keys.RotateKey(s.ctx, s.keyOwner(), key.ID, hash, "svc_live_cd", auth.CLI); err != nil {
				t.Errorf("RotateKey: %v", err)
			}
		})
	}
	callers.Wait()
	var working []int
	for _, hash := range hashes {
		found, err := s.keys.KeyByHash(s.ctx, hash)
		if err == nil {
			working = append(working, found.Secret)
		} else {
			wantError(t, "KeyByHash", err, auth.ErrInvalidToken)
		}
	}
	slices.Sort(working)
	same(t, "the secrets that work", working, []int{0, 1})
}

func racingRevocations(t *testing.T, s *subject) {
	key := s.createKey(t, s.newKey())
	var revoked atomic.Int32
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			switch err := s.keys.RevokeKey(s.ctx, s.keyOwner(), key.ID, auth.CLI); {
			case err == nil:
				revoked.Add(1)
			case !errors.Is(err, auth.ErrKeyNotFound):
				t.Errorf("RevokeKey: %v", err)
			}
		})
	}
	callers.Wait()
	same(t, "the number of revocations that succeeded", revoked.Load(), 1)
}
