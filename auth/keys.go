package auth

import (
	"context"
	"sync"
	"time"
)

// DefaultAccount is the account of the admin key that is declared or made at the first start.
const DefaultAccount = "default"

// Keys verifies secrets. Its methods may be called from any goroutine.
type Keys struct {
	// static
	store    Store
	declared *Key

	verified sync.Map // [32]byte → Principal: the stored keys that were seen; they are never changed
}

// NewKeys returns a verifier of the keys in store, and of the declared secret if it is not "".
func NewKeys(store Store, declared string) *Keys {
	k := &Keys{store: store}
	if declared != "" {
		key := adminKey(declared, "declared")
		k.declared = &key
	}
	return k
}

// CreateFirst makes an admin key of the default account if there is no key yet. It returns the secret, which is
// shown once and kept nowhere, or "" if there was a key.
func (k *Keys) CreateFirst(ctx context.Context) (secret string, err error) {
	secret = NewSecret("live")
	created, err := k.store.CreateFirstKey(ctx, adminKey(secret, "first admin key"))
	if err != nil || !created {
		return "", err
	}
	return secret, nil
}

func adminKey(secret, name string) Key {
	return Key{
		ID: "key_" + randomText(16), Account: DefaultAccount, Mode: "live", Name: name, Scopes: []Scope{Admin},
		Prefix: secret[:shownLength], Hash: hashOf(secret), CreatedAt: time.Now().UTC(),
	}
}

// Verify returns who presents the secret, ErrInvalidToken if nobody we know, or the store's error.
func (k *Keys) Verify(ctx context.Context, secret string) (Principal, error) {
	hash := hashOf(secret)
	if k.declared != nil && k.declared.Hash == hash {
		return principalOf(*k.declared), nil
	}
	if !wellFormed(secret) {
		return Principal{}, ErrInvalidToken
	}
	if p, ok := k.verified.Load(hash); ok {
		return p.(Principal), nil
	}
	key, err := k.store.KeyByHash(ctx, hash)
	if err != nil {
		return Principal{}, err
	}
	p := principalOf(key)
	k.verified.Store(hash, p)
	return p, nil
}

func principalOf(key Key) Principal {
	return Principal{Account: key.Account, Mode: key.Mode, KeyID: key.ID, Scopes: key.Scopes, Tier: "pro"}
}
