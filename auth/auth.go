// Package auth knows who calls: accounts with their tiers, keys with their scopes, secrets and rotation, and the tickets
// that stand for a key where a browser cannot send a header.
//
// A key belongs to an account and a mode, its [Owner], and every operation of the [Store] but the look-up by hash takes
// one: what another owner has cannot even be named. Start reading in key.go (what a key is), then keys.go (what is done
// with it).
package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"parley/auth/limit"
)

var (
	// ErrInvalidToken says that a key or ticket is missing, malformed, unknown, expired or revoked; callers are not
	// told which (spec: Authentication, 5).
	ErrInvalidToken = errors.New("the API key is missing, invalid or expired")
	// ErrKeyNotFound says that an owner has no such key: it is unknown, another's, or was revoked already.
	ErrKeyNotFound = errors.New("there is no such key")
	// ErrScopeNotHeld says that a key was to be made with a scope that its maker lacks.
	ErrScopeNotHeld = errors.New("a key makes only keys with scopes that it has itself")
)

// Scope is what a key may do (spec: Authentication, 6).
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

// The modes, production and development (spec: Authentication, 3). A key's prefix tells its mode.
const (
	Live = "live"
	Test = "test"
)

// Owner is whose a key is, and whose sessions are behind it (design section 2, whose data).
type Owner struct {
	Account string `json:"account"`
	Mode    string `json:"mode"` // Live or Test
}

// Store keeps accounts and keys. Its methods are atomic and, TouchKeys apart, durable when they return; they may be called
// from any goroutine. The store's clock says what time it is. Beside the errors that are named, each may return the
// store's own (it is away, say).
type Store interface {
	// KeyByHash returns the key one of whose secrets has that hash and works now, with its account's tier. Unknown,
	// revoked, expired and rotated-out ones are ErrInvalidToken.
	KeyByHash(ctx context.Context, hash Hash) (KeyMatch, error)

	// CreateKey stores a new key with one secret and returns it with its times stamped: CreatedAt rises strictly within
	// an owner. An account comes into being with its first key. tier becomes the account's tier; "" leaves it, and is
	// limit.Free for a new account. An id or secret that is in use is an error.
	CreateKey(ctx context.Context, key Key, tier limit.Tier) (Key, error)
	// CreateFirstKey does as CreateKey, with no tier, if the account has never had a key, and reports whether it did.
	CreateFirstKey(ctx context.Context, key Key) (created bool, err error)
	// Keys returns all keys of an owner, newest first, the expired and revoked included.
	Keys(ctx context.Context, owner Owner) ([]Key, error)
	// RevokeKey revokes a key: its record stays, its secrets go. ErrKeyNotFound if there is none that is not revoked.
	RevokeKey(ctx context.Context, owner Owner, keyID string) error
	// RotateKey gives a key a new secret, as [Key.Rotate] has it, and returns it. ErrKeyNotFound if there is none, or
	// it is revoked or expired: a new secret would not work.
	RotateKey(ctx context.Context, owner Owner, keyID string, secret Hash, prefix string) (Key, error)
	// KeyAlive reports whether the secret that a principal once presented still works: nil, or ErrInvalidToken. It does
	// not know the declared key.
	KeyAlive(ctx context.Context, p Principal) error
	// Admit admits the request whose [Admission] rides in ctx, if it is pending: its key works, and is the declared one
	// or a stored one; then it counts in the minute of its owner, and a test key's in the day of its account, which
	// is durable and which a restart does not forgive, and in the requests of the hour (conversation.Store.Usage). What is
	// refused counts nowhere.
	Admit(ctx context.Context) error
	// TouchKeys notes when keys were last used; what is later stands. Keys that are not there are passed over.
	TouchKeys(ctx context.Context, uses []KeyUse) error
}

// Found is a key that was found by the hash of one of its secrets.
type KeyMatch struct {
	Key  Key        // its LastUsedAt may be missing: verification does not need it
	Tier limit.Tier // of the account
	// Secret is which one of Key.Secrets it was.
	Secret int
}

// Use is that a key was used.
type KeyUse struct {
	Owner Owner
	KeyID string
	At    time.Time
}

// Principal is who calls: a key's owner, its account's tier, and what it may do.
type Principal struct {
	Account string
	Mode    string
	Tier    limit.Tier
	KeyID   string
	Scopes  []Scope
	// Secret is the hash of the secret that was presented, by which [Keys.Revalidate] knows it again. It is zero for the
	// declared admin key, which may be guessable: a ticket carries it.
	Secret Hash
	// Until is when the secret stops working, as was known when it was verified; zero is never.
	Until time.Time
	// DeprecatedSince is when the secret was rotated out, if it was: it works for a while yet (see [GracePeriod]).
	DeprecatedSince time.Time
	// SessionID is the only session that may be named; "" is any. Tickets can be bound to one.
	SessionID string
}

// Owner returns whose data the principal is about.
func (p Principal) Owner() Owner { return Owner{p.Account, p.Mode} }

// Has reports whether the principal has the scope.
func (p Principal) Has(scope Scope) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, Admin)
}

// May reports whether the principal may name the session.
func (p Principal) MayAccess(sessionID string) bool {
	return p.SessionID == "" || p.SessionID == sessionID
}
