package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// verifyKeys checks that the buckets of API keys are consistent.
func (w *writing) verifyKeys() (err error) {
	orders, secrets := 0, 0
	err = w.bucket(keysBucket).ForEach(func(at, _ []byte) error {
		key, err := w.key(at)
		if err != nil {
			return err
		}
		orders++
		if string(at) != string(keyKey(key.Owner, key.ID)) || w.bucket(keyOrderBucket).Get(keyOrderKey(&key)) == nil ||
			w.bucket(accountsBucket).Get(accountKey(key.Account)) == nil || key.Revoked != (len(key.Secrets) == 0) {
			return fmt.Errorf("the key %+v lacks an index entry", key)
		}
		for _, secret := range key.Secrets {
			secrets++
			if string(w.bucket(secretsBucket).Get(secret.Hash[:])) != string(at) {
				return fmt.Errorf("a secret of the key %+v has no index entry", key)
			}
		}
		return nil
	})
	err = errors.Join(err, w.bucket(keyEndsBucket).ForEach(func(at, _ []byte) error {
		owner, entry, ok := cutOwner(at)
		if !ok || len(entry) < timeLength {
			return errRecord
		}
		end := conversation.Time(binary.BigEndian.Uint64(entry))
		key, err := w.key(append(ownerKey(owner), entry[timeLength:]...))
		if err != nil || !key.Revoked && end != endOf(&key) || key.Revoked && end > w.now {
			return fmt.Errorf("the key %+v has the end %v: %w", key, end, err)
		}
		return nil
	}))
	for name, want := range map[string]int{keyOrderBucket: orders, keyEndsBucket: orders, secretsBucket: secrets} {
		if n := w.bucket(name).Stats().KeyN; n != want {
			err = errors.Join(err, fmt.Errorf("%s has %d entries, want %d", name, n, want))
		}
	}
	return err
}

func aKey(hash auth.Hash) auth.Key {
	return auth.Key{
		Owner: auth.Owner{Account: "a", Mode: auth.Live}, ID: auth.KeyPrefix + conversation.RandomText(16), Name: "a key",
		Scopes: []auth.Scope{auth.Admin}, Prefix: "svc_live_ab", Secrets: []auth.Secret{{Hash: hash}},
	}
}

func TestKeys_ExpiryAndGracePeriod_EndSecrets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		works := func(what string, hash auth.Hash, want bool) {
			t.Helper()
			if _, err := s.KeyByHash(context.Background(), hash); (err == nil) != want || err != nil && !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("%s: %v", what, err)
			}
		}
		expiring := aKey(auth.Hash{1})
		expiring.ExpiresAt = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		rotated := aKey(auth.Hash{2})
		for _, key := range []auth.Key{expiring, rotated} {
			_, err := s.CreateKey(context.Background(), key, limit.Pro)
			must(t, err)
		}
		_, err := s.RotateKey(context.Background(), rotated.Owner, rotated.ID, auth.Hash{3}, "svc_live_cd", auth.CLI)
		must(t, err)
		_, err = s.RotateKey(context.Background(), rotated.Owner, expiring.ID, auth.Hash{4}, "svc_live_cd", auth.CLI)
		must(t, err)

		time.Sleep(time.Hour - time.Millisecond)
		works("newest secret, a millisecond before the key expires", auth.Hash{4}, true)
		works("previous secret, a millisecond before the key expires", auth.Hash{1}, true)
		time.Sleep(time.Millisecond)
		works("newest secret, when the key expires", auth.Hash{4}, false)
		works("previous secret, when the key expires within the 24 hours", auth.Hash{1}, false)

		time.Sleep(23*time.Hour - time.Millisecond)
		works("previous secret, a millisecond before the 24 hours are over", auth.Hash{2}, true)
		time.Sleep(time.Millisecond)
		works("previous secret, after 24 hours", auth.Hash{2}, false)
		works("newest secret, after 24 hours", auth.Hash{3}, true)
		verify(t, s)
		must(t, s.Close())
	})
}

func TestKeys_SurviveRestart(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	kept, err := s.CreateKey(context.Background(), aKey(auth.Hash{1}), limit.Pro)
	must(t, err)
	revoked, err := s.CreateKey(context.Background(), aKey(auth.Hash{2}), "")
	must(t, err)
	must(t, s.RevokeKey(context.Background(), revoked.Owner, revoked.ID, auth.CLI))
	must(t, s.Close())

	s = open(t, path)
	found, err := s.KeyByHash(context.Background(), auth.Hash{1})
	must(t, err)
	if found.Tier != limit.Pro || found.Key.ID != kept.ID || !found.Key.CreatedAt.Equal(kept.CreatedAt) {
		t.Errorf("after a restart the key is %+v", found)
	}
	if _, err := s.KeyByHash(context.Background(), auth.Hash{2}); !errors.Is(err, auth.ErrInvalidToken) {
		t.Errorf("a revoked key, after a restart: %v", err)
	}
	verify(t, s)
}

func TestKeys_30DaysAfterRevocation_Removed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		kept, err := s.CreateKey(t.Context(), aKey(auth.Hash{1}), "")
		must(t, err)
		revoked, err := s.CreateKey(t.Context(), aKey(auth.Hash{2}), "")
		must(t, err)
		time.Sleep(time.Hour)
		must(t, s.RevokeKey(t.Context(), revoked.Owner, revoked.ID, auth.CLI))
		for _, step := range []struct {
			wait time.Duration
			keys int
		}{{auth.EndedKeyLifetime - time.Millisecond, 2}, {time.Millisecond, 1}} {
			time.Sleep(step.wait)
			page, err := s.Keys(t.Context(), kept.Owner, auth.KeyQuery{Limit: 9})
			must(t, err)
			if len(page.Keys) != step.keys || page.Keys[step.keys-1].ID != kept.ID {
				t.Errorf("the keys are %+v, want %d", page.Keys, step.keys)
			}
			verify(t, s)
		}
		must(t, s.Close())
	})
}

func TestCreateKey_MoreThanMaxEnded_OldestRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		var first, last auth.Key
		must(t, s.submit(t.Context(), func(w *writing) error {
			for i := range auth.MaxEndedKeys + 15 {
				key := aKey(auth.HashOf(strconv.Itoa(i)))
				key.CreatedAt = time.Unix(int64(i), 0).UTC()
				key.ExpiresAt = time.Now().Add(time.Duration(i) * time.Millisecond).UTC().Truncate(time.Millisecond)
				for bucket, at := range map[string][]byte{
					keyOrderBucket: keyOrderKey(&key), keyEndsBucket: keyEndKey(key.Owner, endOf(&key), key.ID),
				} {
					if err := w.put(bucket, at, nil); err != nil {
						return err
					}
				}
				if i == 0 {
					first = key
				}
				last = key
				if err := w.replaceKey(&key, nil); err != nil {
					return err
				}
			}
			return w.putTier(&auth.Key{Owner: auth.Owner{Account: "a"}}, limit.Free)
		}))
		time.Sleep(time.Hour)
		for i, want := range []int{auth.MaxEndedKeys + 5, auth.MaxEndedKeys, auth.MaxEndedKeys} {
			_, err := s.CreateKey(t.Context(), aKey(auth.Hash{byte(i + 1)}), "")
			must(t, err)
			must(t, s.view(t.Context(), func(r *reading) error {
				if n := len(r.endedKeys(first.Owner, r.now, 1<<20)); n != want {
					t.Errorf("%d ended keys are left, want %d", n, want)
				}
				return nil
			}))
		}
		if err := s.RevokeKey(t.Context(), first.Owner, first.ID, auth.CLI); !errors.Is(err, auth.ErrKeyNotFound) {
			t.Errorf("RevokeKey of the key that ended first: %v, want ErrKeyNotFound", err)
		}
		must(t, s.RevokeKey(t.Context(), last.Owner, last.ID, auth.CLI))
		verify(t, s)
		must(t, s.Close())
	})
}

// TestOpen_FileWithoutKeyEnds_EndsAdded removes the bucket of the ends, which earlier versions did not write.
func TestOpen_FileWithoutKeyEnds_EndsAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		s := open(t, path)
		expiring := aKey(auth.Hash{1})
		expiring.ExpiresAt = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		for _, key := range []auth.Key{expiring, aKey(auth.Hash{2}), aKey(auth.Hash{3})} {
			_, err := s.CreateKey(t.Context(), key, "")
			must(t, err)
		}
		page, err := s.Keys(t.Context(), expiring.Owner, auth.KeyQuery{Limit: 9})
		must(t, err)
		must(t, s.RevokeKey(t.Context(), expiring.Owner, page.Keys[0].ID, auth.CLI))
		must(t, s.submit(t.Context(), func(w *writing) error {
			w.wrote = true
			return w.bolt.DeleteBucket([]byte(keyEndsBucket))
		}))
		must(t, s.Close())

		time.Sleep(2 * time.Hour)
		s = open(t, path)
		verify(t, s)
		must(t, s.view(t.Context(), func(r *reading) error {
			if n := r.activeKeys(expiring.Owner, 9); n != 1 { // one has expired, one is revoked
				t.Errorf("%d active keys, want 1", n)
			}
			return nil
		}))
		time.Sleep(auth.EndedKeyLifetime)
		page, err = s.Keys(t.Context(), expiring.Owner, auth.KeyQuery{Limit: 9})
		must(t, err)
		if len(page.Keys) != 1 {
			t.Errorf("the keys are %+v, want one", page.Keys)
		}
		verify(t, s)
		must(t, s.Close())
	})
}
