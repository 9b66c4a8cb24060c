package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"parley/auth/limit"
)

var (
	// ErrInvalidToken means that a key or ticket is missing, malformed, unknown, expired or revoked. Callers are not
	// told which: that would help to guess keys.
	ErrInvalidToken = errors.New("the API key is missing, invalid or expired")
	// ErrKeyNotFound means that the owner has no such key: it is unknown, another owner's, or already revoked.
	ErrKeyNotFound = errors.New("no such API key")
	// ErrScopeNotHeld means that the maker of a key wanted to grant a scope that it lacks.
	ErrScopeNotHeld = errors.New("a key can only grant scopes that it has itself")
)

// Scope is a permission of a key.
type Scope string

// The scopes; Admin implies all others.
const (
	ReadSessions  Scope = "read:sessions"
	WriteSessions Scope = "write:sessions"
	ReadMessages  Scope = "read:messages"
	WriteMessages Scope = "write:messages"
	ReadAnalytics Scope = "read:analytics"
	Admin         Scope = "admin"
)

// The modes, for production and for development. They share nothing but the account. The prefix of a secret names its mode.
const (
	Live = "live"
	Test = "test"
)

// Owner is the account and mode that a key, and all that is made with it, belongs to.
type Owner struct {
	Account string `json:"account"`
	Mode    string `json:"mode"` // Live or Test
}

// Store keeps accounts and keys. Its methods are atomic and, except TouchKeys, durable when they return. They may be
// called from any goroutine. The store's clock decides what time it is. Besides the errors named here, each method
// may return the store's own, for example when it is unreachable.
type Store interface {
	// KeyByHash returns the key that has a working secret with this hash, and its account's tier. ErrInvalidToken if
	// the secret is unknown, revoked, expired or rotated out.
	KeyByHash(ctx context.Context, hash Hash) (KeyMatch, error)

	// CreateKey stores a new key with one secret and returns it with its times set: CreatedAt rises strictly within
	// an owner. An account is created with its first key. tier becomes the account's tier; "" leaves it as it is, and
	// means limit.Free for a new account. An id or secret that is in use is an error.
	CreateKey(ctx context.Context, key Key, tier limit.Tier) (Key, error)
	// CreateFirstKey is CreateKey without a tier, but only if the account never had a key. It reports whether it made
	// one.
	CreateFirstKey(ctx context.Context, key Key) (created bool, err error)
	// Keys returns all keys of an owner, newest first, including expired and revoked ones.
	Keys(ctx context.Context, owner Owner) ([]Key, error)
	// RevokeKey revokes a key: its record stays, its secrets are removed. ErrKeyNotFound if there is no such key, or
	// it is already revoked.
	RevokeKey(ctx context.Context, owner Owner, keyID string) error
	// RotateKey gives a key a new secret, as [Key.Rotate] does, and returns it. ErrKeyNotFound if there is no such
	// key, or it is revoked or expired: a new secret would not work.
	RotateKey(ctx context.Context, owner Owner, keyID string, secret Hash, prefix string) (Key, error)
	// KeyAlive returns nil if the secret that a principal once presented still works, else ErrInvalidToken. It does
	// not know the declared key.
	KeyAlive(ctx context.Context, p Principal) error
	// Admit admits the request whose [Admission] is in ctx, if it is pending. It checks that the key works (the
	// declared one always does), then counts the request: in the minute of its owner, for a test key in the day of
	// its account, and in the requests of the hour (conversation.Store.Usage). The day is durable and survives a
	// restart. A refused request counts nowhere.
	Admit(ctx context.Context) error
	// TouchKeys stores when keys were last used, unless a later time is stored. Unknown keys are skipped.
	TouchKeys(ctx context.Context, uses []KeyUse) error
}

// KeyMatch is the key that was found by the hash of one of its secrets.
type KeyMatch struct {
	Key  Key        // LastUsedAt may be missing: verification does not need it
	Tier limit.Tier // of the account
	// Secret is the index in Key.Secrets of the secret that matched.
	Secret int
}

// KeyUse is one use of a key.
type KeyUse struct {
	Owner Owner
	KeyID string
	At    time.Time
}

// Principal is the caller: the key's owner, its account's tier, and what it may do.
type Principal struct {
	Account string
	Mode    string
	Tier    limit.Tier
	KeyID   string
	Scopes  []Scope
	// Secret is the hash of the secret that was presented, for [Keys.Revalidate]. It is zero for the declared admin
	// key: a ticket contains the principal, and that hash may be guessable.
	Secret Hash
	// Until is when the secret stops working, as known when it was verified; zero is never.
	Until time.Time
	// DeprecatedSince is when the secret was rotated out; zero if it was not. It works until [GracePeriod] has
	// passed.
	DeprecatedSince time.Time
	// SessionID is the only session that the principal may name; "" is any. A ticket can be bound to one.
	SessionID string
}

// Owner returns whose data the principal works with.
func (p Principal) Owner() Owner { return Owner{p.Account, p.Mode} }

// Has reports whether the principal has the scope.
func (p Principal) Has(scope Scope) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, Admin)
}

// MayAccess reports whether the principal may name the session.
func (p Principal) MayAccess(sessionID string) bool {
	return p.SessionID == "" || p.SessionID == sessionID
}
