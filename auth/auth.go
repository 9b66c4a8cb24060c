// Package auth knows who calls: accounts and their tiers, keys, tickets.
package auth

import (
	"context"
	"errors"
	"time"
)

// ErrInvalidToken says that a key or ticket is missing, malformed, unknown, expired or revoked; callers are not told
// which (spec: Authentication, 5).
var ErrInvalidToken = errors.New("the API key is missing, invalid or expired")

// Key is the record of a key. The secret itself is kept nowhere; Hash is its SHA-256.
type Key struct {
	ID        string    `json:"keyId"`
	Account   string    `json:"account"`
	Mode      string    `json:"mode"` // "live" or "test", as its prefix says
	Name      string    `json:"name"`
	Scopes    []string  `json:"scopes"`
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
