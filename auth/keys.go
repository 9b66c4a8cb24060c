package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"parley/auth/base62"
	"parley/auth/limit"
)

// DefaultAccount owns the admin key that configuration declares, or that the first start creates.
const DefaultAccount = "default"

// Options of Keys.
type Options struct {
	// AdminKey is the secret of the declared admin key, which must pass [CheckDeclared]; "" means no such key. The key
	// belongs to the default account and appears in no list. Only configuration changes it.
	AdminKey string
	// Tier overrides the stored tier of the default account; "" means limit.Pro.
	Tier limit.Tier
}

// Keys creates, rotates, revokes and verifies keys. Its methods may be called from any goroutine. Close it before the
// store.
//
// When this process revokes or rotates a key, the next call of Verify sees the change. When another process does, Verify
// may use the old state for up to 5 s, but no request with a revoked secret is admitted (see [Admission]).
type Keys struct {
	// static
	store        Store
	tier         limit.Tier // of the default account
	declared     Principal
	declaredHash Hash // zero if there is none

	cache cache
	uses  uses
}

// NewKeys returns Keys that use store.
func NewKeys(store Store, options Options) *Keys {
	k := &Keys{store: store, tier: options.Tier, uses: uses{store: store}}
	if k.tier == "" {
		k.tier = limit.Pro
	}
	if options.AdminKey != "" {
		k.declaredHash = HashOf(options.AdminKey)
		k.declared = Principal{
			Account: DefaultAccount, Mode: Live, Tier: k.tier, KeyID: declaredID(k.declaredHash), Scopes: []Scope{Admin},
		}
	}
	return k
}

// declaredID derives the id of the declared key from its hash, so the id is the same after every restart.
func declaredID(hash Hash) string {
	digest := sha256.Sum256(append([]byte("parley: id of a declared key\n"), hash[:]...))
	id := []byte(KeyPrefix)
	for _, b := range digest[:16] {
		id = append(id, base62.Alphabet[int(b)%len(base62.Alphabet)])
	}
	return string(id)
}

// Close writes the pending times of last use.
func (k *Keys) Close(ctx context.Context) error { return k.uses.close(ctx) }

// CreateFirst creates an admin key of the default account if that account never had a key. It returns the secret, or ""
// if there was a key. The secret is stored nowhere, so the caller must show it.
func (k *Keys) CreateFirst(ctx context.Context) (secret string, err error) {
	key, secret := newKey(Owner{DefaultAccount, Live}, NewKey{Name: "first admin key", Scopes: []Scope{Admin}})
	created, err := k.store.CreateFirstKey(ctx, key)
	if err != nil || !created {
		return "", err
	}
	return secret, nil
}

// Create creates a key with the account and mode of maker. It returns the key and its secret, which is stored nowhere, so
// the caller must show it. It returns ErrScopeNotHeld if wanted has a scope that maker lacks. The caller must have
// checked the other fields of wanted.
func (k *Keys) Create(ctx context.Context, maker Principal, wanted NewKey) (key Key, secret string, err error) {
	for _, scope := range wanted.Scopes {
		if !maker.Has(scope) {
			return Key{}, "", ErrScopeNotHeld
		}
	}
	return k.CreateFor(ctx, maker.Owner(), wanted, "")
}

// CreateFor creates a key of any owner, for the operator. It works like Create but skips the check of scopes. tier
// becomes the account's tier. If tier is "", the account keeps its tier, and a new account gets limit.Free.
func (k *Keys) CreateFor(ctx context.Context, owner Owner, wanted NewKey, tier limit.Tier) (key Key, secret string, err error) {
	key, secret = newKey(owner, wanted)
	if key, err = k.store.CreateKey(ctx, key, tier); err != nil {
		return Key{}, "", err
	}
	if tier != "" {
		k.cache.forget()
	}
	return key, secret, nil
}

func newKey(owner Owner, wanted NewKey) (Key, string) {
	secret := NewSecret(owner.Mode)
	return Key{
		Owner: owner, ID: KeyPrefix + base62.Random(16), Name: wanted.Name, Scopes: wanted.Scopes, ExpiresAt: wanted.ExpiresAt,
		Prefix: secret[:shownLength], Secrets: []Secret{{Hash: HashOf(secret)}},
	}, secret
}

// List returns all keys of an owner, newest first, including expired and revoked ones, but not the declared key.
func (k *Keys) List(ctx context.Context, owner Owner) ([]Key, error) { return k.store.Keys(ctx, owner) }

// Revoke revokes a key: both its secrets are refused from now on. It returns ErrKeyNotFound if the owner has no such key,
// if the key is already revoked, and for the declared key.
func (k *Keys) Revoke(ctx context.Context, owner Owner, keyID string) error {
	defer k.cache.forget() // also after an error: the store may have revoked the key
	return k.store.RevokeKey(ctx, owner, keyID)
}

// Rotate gives a key a new secret and returns both. The previous secret works for GracePeriod more, or until the key
// expires; an older one stops working. It returns ErrKeyNotFound if the owner has no such key, if the key is revoked or
// expired, and for the declared key.
func (k *Keys) Rotate(ctx context.Context, owner Owner, keyID string) (key Key, secret string, err error) {
	defer k.cache.forget()
	secret = NewSecret(owner.Mode)
	if key, err = k.store.RotateKey(ctx, owner, keyID, HashOf(secret), secret[:shownLength]); err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
}

// Verify returns the principal of the secret and notes the use of its key. It returns ErrInvalidToken if the secret
// belongs to no working key, and otherwise the store's error.
func (k *Keys) Verify(ctx context.Context, secret string) (Principal, error) {
	hash := HashOf(secret)
	if k.declaredHash != (Hash{}) && k.declaredHash == hash {
		return k.declared, nil
	}
	if !wellFormed(secret) {
		return Principal{}, ErrInvalidToken
	}
	now := time.Now()
	p, err := k.resolve(ctx, hash, now)
	if err == nil {
		k.uses.note(p.Owner(), p.KeyID, now)
	}
	return p, err
}

// Revalidate returns nil if the secret that p presented earlier still works, and ErrInvalidToken if it does not. After
// any other error, which is the store's, the answer is unknown.
func (k *Keys) Revalidate(ctx context.Context, p Principal) error {
	if p.Secret == (Hash{}) && k.declared.KeyID != "" && p.KeyID == k.declared.KeyID {
		return nil
	}
	return k.store.KeyAlive(ctx, p)
}

// Admit admits the request whose admission is in ctx, unless an earlier store operation has decided it.
func (k *Keys) Admit(ctx context.Context) error { return k.store.Admit(ctx) }

// resolve returns the principal of the secret with this hash, from the cache or the store.
func (k *Keys) resolve(ctx context.Context, hash Hash, now time.Time) (Principal, error) {
	p, ok, epoch := k.cache.get(hash, now)
	if ok {
		return p, nil
	}
	found, err := k.store.KeyByHash(ctx, hash)
	if errors.Is(err, ErrInvalidToken) {
		k.cache.drop(hash)
	}
	if err != nil {
		return Principal{}, err
	}
	p = k.principal(found)
	k.cache.put(hash, verified{principal: p, end: found.Key.SecretExpiry(found.Secret), at: now}, epoch)
	return p, nil
}

func (k *Keys) principal(found KeyMatch) Principal {
	key := found.Key
	p := Principal{
		Account: key.Account, Mode: key.Mode, Tier: found.Tier, KeyID: key.ID, Scopes: key.Scopes,
		Secret: key.Secrets[found.Secret].Hash, Until: key.SecretExpiry(found.Secret),
	}
	if found.Secret > 0 {
		p.DeprecatedSince = key.Secrets[0].Since
	}
	if p.Account == DefaultAccount {
		p.Tier = k.tier
	}
	return p
}
