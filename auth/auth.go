package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"parley/auth/limit"
)

var (
	// ErrInvalidToken means that a key or ticket is missing, malformed, unknown, expired or revoked. The error does not
	// say which, because that would help to guess keys.
	ErrInvalidToken = errors.New("the API key is missing, invalid or expired")
	// ErrKeyNotFound means that the owner has no such key, or that the key is already revoked. A rotation also returns it
	// for an expired key.
	ErrKeyNotFound = errors.New("no such API key")
	// ErrScopeNotHeld means that the maker of a key tried to grant a scope that the maker lacks.
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

// The modes: live for production, test for development. They share only the account. The prefix of a secret names its
// mode.
const (
	Live = "live"
	Test = "test"
)

// Owner is an account in a mode. A key belongs to one owner, and so does everything that a caller creates with the key.
type Owner struct {
	Account string `json:"account"`
	Mode    string `json:"mode"` // Live or Test
}

// Store keeps accounts and keys. Its methods are atomic and, except TouchKeys, durable when they return. They may be
// called from any goroutine. All times are from the store's clock. Besides the errors named here, each method may return
// an error of the store, for example when it is unreachable.
type Store interface {
	// KeyByHash returns the key that has a working secret with this hash, and its account's tier. It returns
	// ErrInvalidToken if the secret is unknown, revoked, expired or rotated out.
	KeyByHash(ctx context.Context, hash Hash) (KeyMatch, error)

	// CreateKey stores a new key with one secret. It sets CreatedAt, which rises strictly within an owner, and returns
	// the key. The first key of an account creates the account. tier becomes the account's tier. If tier is "", the
	// account keeps its tier, and a new account gets limit.Free. CreateKey returns an error if the id or the secret is in
	// use.
	CreateKey(ctx context.Context, key Key, tier limit.Tier) (Key, error)
	// CreateFirstKey works like CreateKey with tier "" if the account never had a key. Otherwise it does nothing, and
	// created is false.
	CreateFirstKey(ctx context.Context, key Key) (created bool, err error)
	// Keys returns all keys of an owner, newest first, including expired and revoked ones.
	Keys(ctx context.Context, owner Owner) ([]Key, error)
	// RevokeKey revokes a key: its record stays, its secrets are removed. It returns ErrKeyNotFound if there is no such
	// key, or if the key is already revoked.
	RevokeKey(ctx context.Context, owner Owner, keyID string) error
	// RotateKey gives a key a new secret, as [Key.Rotate] does, and returns the key. It returns ErrKeyNotFound if there
	// is no such key. It also does so if the key is revoked or expired, because the new secret would not work.
	RotateKey(ctx context.Context, owner Owner, keyID string, secret Hash, prefix string) (Key, error)
	// KeyAlive returns nil if the secret that p presented earlier still works, else ErrInvalidToken. It does not know the
	// declared key.
	KeyAlive(ctx context.Context, p Principal) error
	// Admit admits the request whose [Admission] is in ctx, if that is pending. It checks that the key works; the
	// declared key always does. Then it counts the request in the minute of its owner and in the usage of the hour
	// (conversation.Store.Usage). It also counts a request with a test key in the day of the account; that count is
	// durable. A refused request is not counted.
	Admit(ctx context.Context) error
	// TouchKeys updates the times of last use. It keeps a stored time that is later, and skips unknown keys.
	TouchKeys(ctx context.Context, uses []KeyUse) error
}

// KeyMatch is a key, found by the hash of one of its secrets.
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

// Principal is an authenticated caller: the owner of its key, its account's tier, and its permissions.
type Principal struct {
	Account string
	Mode    string
	Tier    limit.Tier
	KeyID   string
	Scopes  []Scope
	// Secret is the hash of the secret that was presented, for [Keys.Revalidate]. It is zero for the declared admin key,
	// because a ticket contains the principal and the declared secret may be guessable from its hash.
	Secret Hash
	// Until is the time at which the secret stops working, as known at verification; zero means never.
	Until time.Time
	// DeprecatedSince is the time at which the secret was rotated out; zero if it was not. The secret works for at most
	// [GracePeriod] after that.
	DeprecatedSince time.Time
	// SessionID is the only session that the principal may access; "" means any. A ticket can be bound to one.
	SessionID string
}

// Owner returns the owner whose data the principal may access.
func (p Principal) Owner() Owner { return Owner{p.Account, p.Mode} }

// Has reports whether the principal has the scope.
func (p Principal) Has(scope Scope) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, Admin)
}

// MayAccess reports whether the principal may access the session: it is bound to no session, or to this one.
func (p Principal) MayAccess(sessionID string) bool {
	return p.SessionID == "" || p.SessionID == sessionID
}
