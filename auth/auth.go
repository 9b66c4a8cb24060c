// Package auth knows who calls: keys, the scopes they have, and the tickets that stand for them where a browser
// cannot send a header.
package auth

import (
	"context"
	"errors"
	"slices"
	"time"
)

// ErrInvalidToken says that a key or ticket is missing, malformed, unknown, expired or revoked; callers are not told
// which (spec: Authentication, 5).
var ErrInvalidToken = errors.New("the API key is missing, invalid or expired")

// Scope is what a key may do (spec: Authentication, 6).
type Scope string

// The scopes; ScopeAdmin implies all others.
const (
	ReadSessions  Scope = "read:sessions"
	WriteSessions Scope = "write:sessions"
	ReadMessages  Scope = "read:messages"
	WriteMessages Scope = "write:messages"
	ReadAnalytics Scope = "read:analytics"
	Admin         Scope = "admin"
)

// Key is the record of a key. The secret itself is kept nowhere; Hash is its SHA-256.
type Key struct {
	ID        string    `json:"keyId"`
	Account   string    `json:"account"`
	Mode      string    `json:"mode"` // "live" or "test", as its prefix says
	Name      string    `json:"name"`
	Scopes    []Scope   `json:"scopes"`
	Prefix    string    `json:"prefix"` // the secret's first characters, for people
	Hash      [32]byte  `json:"hash"`
	CreatedAt time.Time `json:"createdAt"`
}

// Store keeps keys. Its methods are atomic and durable, and may be called from any goroutine.
type Store interface {
	// KeyByHash returns the key whose secret has that hash, or ErrInvalidToken.
	KeyByHash(ctx context.Context, hash [32]byte) (Key, error)
	// CreateFirstKey stores the key if its account has none yet, and reports whether it did.
	CreateFirstKey(ctx context.Context, key Key) (created bool, err error)
}

// Principal is who calls: a key's account and mode, and what it may do.
type Principal struct {
	Account string
	Mode    string
	KeyID   string
	Scopes  []Scope
	Tier    string // of the account: "free", "pro" or "enterprise"
	// SessionID is the only session that may be named; "" is any. Tickets can be bound to one.
	SessionID string
}

// Has reports whether the principal has the scope.
func (p Principal) Has(scope Scope) bool {
	return slices.Contains(p.Scopes, scope) || slices.Contains(p.Scopes, Admin)
}

// May reports whether the principal may name the session.
func (p Principal) May(sessionID string) bool {
	return p.SessionID == "" || p.SessionID == sessionID
}
