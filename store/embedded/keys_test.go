package embedded

import (
	"context"
	"errors"
	"fmt"
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
	for name, want := range map[string]int{keyOrderBucket: orders, secretsBucket: secrets} {
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
		_, err := s.RotateKey(context.Background(), rotated.Owner, rotated.ID, auth.Hash{3}, "svc_live_cd")
		must(t, err)
		_, err = s.RotateKey(context.Background(), rotated.Owner, expiring.ID, auth.Hash{4}, "svc_live_cd")
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
	must(t, s.RevokeKey(context.Background(), revoked.Owner, revoked.ID))
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
