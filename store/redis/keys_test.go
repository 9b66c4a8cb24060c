package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// wire is a hook of the go-redis client. It counts round trips, and can make one script fail.
type wire struct {
	trips     atomic.Int64
	dropped   atomic.Pointer[script] // this script is never sent; nil for none
	replyLost atomic.Pointer[script] // the next reply to this script is lost; nil for none
}

// tap adds a wire to a store's client, and returns the wire.
func tap(s *Store) *wire {
	w := new(wire)
	s.db.AddHook(w)
	return w
}

// is reports whether cmd runs the script sc.
func is(cmd redis.Cmder, sc *script) bool {
	args := cmd.Args()
	return sc != nil && len(args) > 1 && (args[1] == sc.compiled().digest || args[1] == sc.compiled().text)
}

// errDropped is the error for a script that wire does not send.
var errDropped = &net.OpError{Op: "write", Err: errors.New("the node is dead")}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.trips.Add(1)
		if is(cmd, w.dropped.Load()) {
			cmd.SetErr(errDropped)
			return errDropped
		}
		err := next(ctx, cmd)
		if is(cmd, w.replyLost.Load()) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			w.replyLost.Store(nil)
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.trips.Add(1)
		for _, cmd := range cmds {
			if is(cmd, w.dropped.Load()) {
				for _, cmd := range cmds {
					cmd.SetErr(errDropped)
				}
				return errDropped
			}
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if is(cmd, w.replyLost.Load()) && !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
				w.replyLost.Store(nil)
				for _, cmd := range cmds {
					cmd.SetErr(io.EOF)
				}
				return io.EOF
			}
		}
		return err
	}
}

// halfWay calls change with a store that cannot write pointers, as if the node died after it changed the key's record.
func halfWay(t *testing.T, change func(s *Store) error) error {
	t.Helper()
	s := newStore(t)
	tap(s).dropped.Store(setPointerScript)
	return change(s)
}

// finds returns the result of KeyByHash for the secret with that hash, and whether a request with the secret is admitted.
func finds(t *testing.T, s *Store, key auth.Key, hash auth.Hash) (found auth.KeyMatch, works bool) {
	t.Helper()
	found, err := s.KeyByHash(t.Context(), hash)
	if err != nil {
		wantError(t, "KeyByHash", err, auth.ErrInvalidToken)
		return found, false
	}
	_, err = admit(t, s, auth.Principal{Account: key.Account, Mode: key.Mode, KeyID: found.Key.ID, Secret: hash})
	if err != nil {
		wantError(t, "Admit", err, auth.ErrInvalidToken)
	}
	return found, err == nil
}

func TestCreateKey_CrashBeforePointer_SecretNotFound(t *testing.T) {
	s, key := newStore(t), aKey(auth.Owner{Account: newAccount(), Mode: auth.Live})
	err := halfWay(t, func(dying *Store) error {
		_, err := dying.CreateKey(t.Context(), key, "")
		return err
	})
	wantError(t, "CreateKey", err, conversation.ErrUnavailable)
	if _, works := finds(t, s, key, key.Secrets[0].Hash); works {
		t.Error("a request with the secret of the new key is admitted")
	}
	must(t, s.RevokeKey(t.Context(), key.Owner, key.ID, auth.CLI)) // the key is listed and can be revoked
}

func TestRevokeKey_CrashBeforePointer_SecretRefused(t *testing.T) {
	s, key := newStore(t), aKey(auth.Owner{Account: newAccount(), Mode: auth.Live})
	_, err := s.CreateKey(t.Context(), key, "")
	must(t, err)
	must(t, halfWay(t, func(dying *Store) error { return dying.RevokeKey(t.Context(), key.Owner, key.ID, auth.CLI) }))
	if found, works := finds(t, s, key, key.Secrets[0].Hash); works || found.Key.ID != key.ID {
		t.Errorf("after the crash: admitted: %v, found %+v; want a pointer to the key, but no admission", works, found)
	}
	if found, _ := finds(t, s, key, key.Secrets[0].Hash); found.Key.ID != "" {
		t.Error("the pointer to a revoked key was not removed")
	}
}

func TestRotateKey_CrashBeforePointer_OldSecretWorks(t *testing.T) {
	s, key := newStore(t), aKey(auth.Owner{Account: newAccount(), Mode: auth.Live})
	_, err := s.CreateKey(t.Context(), key, "")
	must(t, err)
	first, second, third := key.Secrets[0].Hash, aKey(key.Owner).Secrets[0].Hash, aKey(key.Owner).Secrets[0].Hash
	_, err = s.RotateKey(t.Context(), key.Owner, key.ID, second, "svc_live_cd", auth.CLI)
	must(t, err)
	err = halfWay(t, func(dying *Store) error {
		_, err := dying.RotateKey(t.Context(), key.Owner, key.ID, third, "svc_live_ef", auth.CLI)
		return err
	})
	wantError(t, "RotateKey", err, conversation.ErrUnavailable)
	for what, want := range map[string]struct {
		hash  auth.Hash
		works bool
	}{
		"the first secret, removed": {first, false}, "the second, valid for 24 hours": {second, true}, "the third, never returned": {third, false},
	} {
		if _, works := finds(t, s, key, want.hash); works != want.works {
			t.Errorf("%s: a request with the secret is admitted: %v, want %v", what, works, want.works)
		}
	}
}

func TestSetTier_KeysOfBothModes_FoundWithNewTier(t *testing.T) {
	s, owner := newStore(t), auth.Owner{Account: newAccount(), Mode: auth.Live}
	test := auth.Owner{Account: owner.Account, Mode: auth.Test}
	keys := []auth.Key{aKey(test), aKey(owner), aKey(test)}
	for _, key := range keys {
		_, err := s.CreateKey(t.Context(), key, "")
		must(t, err)
	}
	for _, tier := range []limit.Tier{limit.Enterprise, limit.Pro, limit.Free} {
		must(t, s.setTier(t.Context(), owner.Account, tier, auth.CLI))
		for _, key := range keys {
			if found, works := finds(t, s, key, key.Secrets[0].Hash); !works || found.Tier != tier {
				t.Errorf("mode %s: the tier is %q, want %q, and the key is admitted: %v", key.Mode, found.Tier, tier, works)
			}
		}
	}
}

func TestCreateKey_TestKeyCrashBeforeTier_FoundWithFreeTier(t *testing.T) {
	s, key := newStore(t), aKey(auth.Owner{Account: newAccount(), Mode: auth.Test})
	dying := newStore(t)
	tap(dying).dropped.Store(setTierScript)
	_, err := dying.CreateKey(t.Context(), key, limit.Pro)
	wantError(t, "CreateKey", err, conversation.ErrUnavailable)
	if found, works := finds(t, s, key, key.Secrets[0].Hash); !works || found.Tier != limit.Free {
		t.Errorf("the tier is %q, and the key is admitted: %v", found.Tier, works)
	}
}

func TestRotateKey_LostReply_RotatedOnce(t *testing.T) {
	s, key := newStore(t), aKey(auth.Owner{Account: newAccount(), Mode: auth.Live})
	_, err := s.CreateKey(t.Context(), key, "")
	must(t, err)
	tap(s).replyLost.Store(rotateKeyScript)
	second := aKey(key.Owner).Secrets[0].Hash
	rotated, err := s.RotateKey(t.Context(), key.Owner, key.ID, second, "svc_live_cd", auth.CLI)
	must(t, err)
	if len(rotated.Secrets) != 2 || rotated.Prefix != "svc_live_cd" {
		t.Errorf("the rotated key is %+v", rotated)
	}
	for i, hash := range []auth.Hash{second, key.Secrets[0].Hash} {
		if found, works := finds(t, s, key, hash); !works || found.Secret != i {
			t.Errorf("secret %d is found as secret %d, and is admitted: %v", i, found.Secret, works)
		}
	}
}

// TestKeys_RoundTrips counts the round trips of each operation on API keys.
func TestKeys_RoundTrips(t *testing.T) {
	s := newStore(t)
	owner := auth.Owner{Account: newAccount(), Mode: auth.Test}
	p := newKey(t, s, owner)
	_, err := admit(t, s, p) // afterwards the server knows the script
	must(t, err)
	w := tap(s)
	for what, op := range map[string]struct {
		trips int64
		run   func() error
	}{
		"KeyByHash": {2, func() error { _, err := s.KeyByHash(t.Context(), p.Secret); return err }}, // the pointer, then the tier
		"Admit":     {1, func() error { _, err := admit(t, s, p); return err }},
		"KeyAlive":  {1, func() error { return s.KeyAlive(t.Context(), p) }},
		"Keys":      {1, func() error { _, err := s.Keys(t.Context(), owner, auth.KeyQuery{Limit: 50}); return err }},
		"TouchKeys": {1, func() error {
			return s.TouchKeys(t.Context(), []auth.KeyUse{{Owner: owner, KeyID: p.KeyID}, {Owner: owner}})
		}},
		"PutTicket": {1, func() error { _, err := s.PutTicket(t.Context(), p.Secret, auth.Ticket{}); return err }},
		"TakeTicket": {1, func() error {
			if _, err := s.TakeTicket(t.Context(), auth.Hash{}); !errors.Is(err, auth.ErrInvalidToken) {
				return fmt.Errorf("the error is %w", err)
			}
			return nil
		}},
	} {
		must(t, op.run())
		w.trips.Store(0)
		must(t, op.run())
		if n := w.trips.Load(); n != op.trips {
			t.Errorf("%s took %d round trips, want %d", what, n, op.trips)
		}
	}
}

// TestRemovePointer_OtherKeyOrState_PointerStays calls removePointer for a pointer that names an API key, and for the pointer of
// a secret that is only claimed.
func TestRemovePointer_OtherKeyOrState_PointerStays(t *testing.T) {
	s, owner := newStore(t), auth.Owner{Account: newAccount() + ` <"ä">`, Mode: auth.Live}
	p, claimed := newKey(t, s, owner), aKey(owner).Secrets[0].Hash
	must(t, s.claimSecret(t.Context(), claimed))
	for _, c := range []struct {
		what    string
		hash    auth.Hash
		owner   auth.Owner
		keyID   string
		removed bool
	}{
		{"another account", p.Secret, auth.Owner{Account: owner.Account + "2", Mode: owner.Mode}, p.KeyID, false},
		{"another mode", p.Secret, auth.Owner{Account: owner.Account, Mode: auth.Test}, p.KeyID, false},
		{"another key", p.Secret, owner, "key_0000000000000000", false},
		{"a claim, but the pointer names a key", p.Secret, auth.Owner{}, "", false},
		{"a key, but the secret is claimed", claimed, owner, p.KeyID, false},
		{"an unknown secret", auth.Hash{1}, owner, p.KeyID, true},
		{"the key", p.Secret, owner, p.KeyID, true},
		{"the claim", claimed, auth.Owner{}, "", true},
	} {
		s.removePointer(t.Context(), c.hash, c.owner, c.keyID)
		n, err := s.db.Exists(t.Context(), pointerKey(c.hash)).Result()
		must(t, err)
		if (n == 0) != c.removed {
			t.Errorf("%s: the pointer was removed: %v, want %v", c.what, n == 0, c.removed)
		}
	}
}
