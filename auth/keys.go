package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"parley/auth/base62"
	"parley/auth/limit"
)

// DefaultAccount is the account of the declared admin key, and of the admin key that the first start creates.
const DefaultAccount = "default"

// Options configure [Keys].
type Options struct {
	// AdminKey is the secret of the declared admin key; "" means that there is no declared key. AdminKey must pass
	// [CheckDeclared]. The declared key belongs to the default account and appears in no list.
	AdminKey string
	// Tier is the tier of the default account; "" means limit.Pro. It overrides the tier in the store.
	Tier limit.Tier
}

// Keys creates, rotates, revokes and verifies keys. The methods of Keys may be called from any goroutine. The caller must
// close Keys before the store.
//
// If this process revokes or rotates a key, the next call of Verify uses the new state. If another process does, Verify may
// use the old state for up to 5 s. But the store never admits a request with a revoked secret (see [Admission]).
type Keys struct {
	// static
	store        Store
	tier         limit.Tier // the tier of the default account
	declared     Principal
	declaredHash Hash // zero if there is no declared key

	cache cache
	uses  uses
}

// UserUse returns the numbers of requests and tokens that count for a user in the last minute: see [Store.UserUse].
func (k *Keys) UserUse(ctx context.Context, owner Owner, userID string) (limit.UserUse, error) {
	return k.store.UserUse(ctx, owner, userID)
}

// NewKeys returns Keys for a store.
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

// declaredID derives the id of the declared key from its hash, so that the id stays the same after a restart.
func declaredID(hash Hash) string {
	digest := sha256.Sum256(append([]byte("parley: id of a declared key\n"), hash[:]...))
	id := []byte(KeyPrefix)
	for _, b := range digest[:16] {
		id = append(id, base62.Alphabet[int(b)%len(base62.Alphabet)])
	}
	return string(id)
}

// Close writes the times of last use that have not been written yet.
func (k *Keys) Close(ctx context.Context) error { return k.uses.close(ctx) }

// CreateFirst creates an admin key for the default account, and returns its secret. If the account has ever had a key,
// CreateFirst has no effect and returns "". The secret is not stored, so the caller must show it.
func (k *Keys) CreateFirst(ctx context.Context) (secret string, err error) {
	key, secret := newKey(Owner{DefaultAccount, Live}, NewKey{Name: "first admin key", Scopes: []Scope{Admin}}, CLI)
	created, err := k.store.CreateFirstKey(ctx, key)
	if err != nil || !created {
		return "", err
	}
	return secret, nil
}

// Create creates a key for the owner of maker. It returns the key and its secret. The secret is not stored, so the caller
// must show it. Create returns ErrScopeNotHeld if wanted has a scope that maker does not have. It returns a *QuotaError if
// the owner may not have another key. The caller must check the other fields of wanted.
func (k *Keys) Create(ctx context.Context, maker Principal, wanted NewKey) (key Key, secret string, err error) {
	for _, scope := range wanted.Scopes {
		if !maker.Has(scope) {
			return Key{}, "", ErrScopeNotHeld
		}
	}
	return k.create(ctx, maker.Owner(), wanted, k.ActorOf(maker), "")
}

// ActorOf returns the name of a principal in Key.CreatedBy and AuditEntry.Actor.
func (k *Keys) ActorOf(maker Principal) string {
	if k.isDeclared(maker) {
		return Declared
	}
	return maker.KeyID
}

// isDeclared reports whether a principal is the declared admin key.
func (k *Keys) isDeclared(p Principal) bool {
	return p.Secret == (Hash{}) && k.declared.KeyID != "" && p.KeyID == k.declared.KeyID
}

// CreateFor works like Create, but for any owner and without the check of scopes. It is for the operator. tier becomes the
// tier of the account. If tier is "", an existing account keeps its tier, and a new account gets limit.Free.
func (k *Keys) CreateFor(ctx context.Context, owner Owner, wanted NewKey, tier limit.Tier) (key Key, secret string, err error) {
	return k.create(ctx, owner, wanted, CLI, tier)
}

func (k *Keys) create(
	ctx context.Context, owner Owner, wanted NewKey, createdBy string, tier limit.Tier,
) (key Key, secret string, err error) {
	key, secret = newKey(owner, wanted, createdBy)
	if key, err = k.store.CreateKey(ctx, key, tier); err != nil {
		return Key{}, "", err
	}
	if tier != "" {
		k.cache.forget()
	}
	return key, secret, nil
}

func newKey(owner Owner, wanted NewKey, createdBy string) (Key, string) {
	secret := NewSecret(owner.Mode)
	return Key{
		Owner: owner, ID: KeyPrefix + base62.Random(16), Name: wanted.Name, Scopes: wanted.Scopes, ExpiresAt: wanted.ExpiresAt,
		CreatedBy: createdBy, Prefix: secret[:shownLength], Secrets: []Secret{{Hash: HashOf(secret)}},
	}, secret
}

// List returns a page of the keys of an owner, newest first, including expired and revoked keys, but not the declared key.
func (k *Keys) List(ctx context.Context, owner Owner, query KeyQuery) (KeyPage, error) {
	return k.store.Keys(ctx, owner, query)
}

// Audit returns a page of the audit entries of an owner, newest first.
func (k *Keys) Audit(ctx context.Context, owner Owner, query AuditQuery) (AuditPage, error) {
	return k.store.Audit(ctx, owner, query)
}

// Revoke revokes a key of the caller's owner, so that all secrets of the key stop working at once. by is the caller. Revoke
// returns ErrKeyNotFound if the owner has no such key, if the key is already revoked, and for the declared key.
func (k *Keys) Revoke(ctx context.Context, by Principal, keyID string) error {
	return k.revoke(ctx, by.Owner(), keyID, k.ActorOf(by))
}

// RevokeFor works like Revoke, but for any owner. It is for the operator.
func (k *Keys) RevokeFor(ctx context.Context, owner Owner, keyID string) error {
	return k.revoke(ctx, owner, keyID, CLI)
}

func (k *Keys) revoke(ctx context.Context, owner Owner, keyID, actor string) error {
	defer k.cache.forget() // even after an error, because the store may have revoked the key
	return k.store.RevokeKey(ctx, owner, keyID, actor)
}

// Rotate gives a key of the caller's owner a new secret, and returns the key and the new secret. by is the caller. The previous
// secret works until the end of GracePeriod, or until the key expires. A secret before that one stops working at once. Rotate
// returns ErrKeyNotFound if the owner has no such key, if the key is revoked or expired, and for the declared key.
func (k *Keys) Rotate(ctx context.Context, by Principal, keyID string) (key Key, secret string, err error) {
	return k.rotate(ctx, by.Owner(), keyID, k.ActorOf(by))
}

// RotateFor works like Rotate, but for any owner. It is for the operator.
func (k *Keys) RotateFor(ctx context.Context, owner Owner, keyID string) (key Key, secret string, err error) {
	return k.rotate(ctx, owner, keyID, CLI)
}

func (k *Keys) rotate(ctx context.Context, owner Owner, keyID, actor string) (key Key, secret string, err error) {
	defer k.cache.forget()
	secret = NewSecret(owner.Mode)
	if key, err = k.store.RotateKey(ctx, owner, keyID, HashOf(secret), secret[:shownLength], actor); err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
}

// Verify returns the principal of a secret, and records the time of use of the key. It returns ErrInvalidToken if the
// secret does not work. Any other error is an error of the store.
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

// Revalidate checks whether the secret of p still works. p is a principal from Verify or from a ticket. Revalidate returns
// nil if the secret works, and ErrInvalidToken if it does not. Any other error comes from the store, and means that the
// result is unknown.
func (k *Keys) Revalidate(ctx context.Context, p Principal) error {
	if k.isDeclared(p) {
		return nil
	}
	return k.store.KeyAlive(ctx, p)
}

// Admit decides the admission in ctx, unless an earlier store operation has decided it. See [Store.Admit].
func (k *Keys) Admit(ctx context.Context) error { return k.store.Admit(ctx) }

// OpenSocket admits the request in ctx and counts an open socket of the owner. See [Store.OpenSocket].
func (k *Keys) OpenSocket(ctx context.Context, owner Owner) (close func(), err error) {
	return k.store.OpenSocket(ctx, owner)
}

// resolve returns the principal of the secret with this hash, from the cache or from the store.
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
