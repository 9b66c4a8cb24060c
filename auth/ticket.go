package auth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"parley/auth/base62"
)

// TicketLifetime is the validity of a ticket: long enough for a page to open its socket, too short for somebody who finds
// it in a log.
const TicketLifetime = 30 * time.Second

// TicketStore holds what all nodes share about tickets: any node can redeem a ticket of another node, and each ticket
// only once. Its methods may be called from any goroutine.
type TicketStore interface {
	// TicketKey returns the key that seals tickets. The first call creates a random key, and all nodes get the same one.
	// If the store loses the key, the next call creates another.
	TicketKey(ctx context.Context) (TicketKey, error)
	// UseTicket marks a ticket as used. first is true if the ticket was unused and the store's clock is before until.
	// After an error the ticket may or may not be used.
	UseTicket(ctx context.Context, owner Owner, id string, until time.Time) (first bool, err error)
}

// TicketKey is the secret key that seals tickets. Printing it does not reveal it.
type TicketKey [32]byte

// NewTicketKey returns a random key.
func NewTicketKey() (key TicketKey) {
	rand.Read(key[:]) // never fails
	return key
}

// String hides the key from logs.
func (k TicketKey) String() string { return "(ticket key)" }

// GoString returns the same as String.
func (k TicketKey) GoString() string { return k.String() }

// Tickets issues and redeems tickets. A ticket authenticates as a principal, once, within [TicketLifetime]. It is sealed
// with the store's key, so its holder can neither change it nor read the principal. The methods may be called from any
// goroutine.
type Tickets struct {
	store TicketStore // static

	mu   sync.Mutex
	seal cipher.AEAD // guarded by mu
	read time.Time   // guarded by mu; when the key was last read
}

const (
	// keyFresh is the time after which the key is read again. keyAgain is the minimum time between two reads after a
	// ticket could not be opened. It keeps a flood of invalid tickets from becoming a flood of reads.
	keyFresh = 10 * time.Second
	keyAgain = time.Second
)

// NewTickets returns Tickets that use store. It reads the key, and returns the store's error if that fails.
func NewTickets(ctx context.Context, store TicketStore) (*Tickets, error) {
	t := &Tickets{store: store}
	return t, t.readKey(ctx)
}

// readKey reads the key from the store.
func (t *Tickets) readKey(ctx context.Context) error {
	key, err := t.store.TicketKey(ctx)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // cannot happen: AES accepts 32 bytes
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // cannot happen: GCM accepts the block size of AES
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seal, t.read = seal, time.Now()
	return nil
}

// sealer returns the cipher of tickets. It first reads the key again if the last read is fresh or more ago. If the store
// fails, it returns the cipher with the old key.
func (t *Tickets) sealer(ctx context.Context, fresh time.Duration) cipher.AEAD {
	t.mu.Lock()
	stale := time.Since(t.read) >= fresh
	if stale {
		t.read = time.Now() // other callers use the old key meanwhile
	}
	t.mu.Unlock()
	if stale {
		_ = t.readKey(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seal
}

type ticket struct {
	Principal Principal
	Expires   int64 // Unix milliseconds
	Nonce     string
}

// Issue returns a ticket for the principal and the time at which it expires.
func (t *Tickets) Issue(ctx context.Context, p Principal) (text string, expires time.Time) {
	expires = time.Now().Add(TicketLifetime)
	payload, err := json.Marshal(ticket{Principal: p, Expires: expires.UnixMilli(), Nonce: base62.Random(16)})
	if err != nil {
		panic(err) // strings and bytes only: cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(t.sealer(ctx, keyFresh).Seal(nil, nil, payload, nil)), expires
}

// Redeem returns the principal of a ticket. It returns ErrInvalidToken if the ticket is malformed, expired, sealed with
// the key of another store, or was redeemed before on any node. Any other error is the store's.
func (t *Tickets) Redeem(ctx context.Context, text string) (Principal, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	payload, err := t.sealer(ctx, keyFresh).Open(nil, nil, sealed, nil)
	if err != nil { // the store may have created another key since the last read
		payload, err = t.sealer(ctx, keyAgain).Open(nil, nil, sealed, nil)
	}
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	var is ticket
	if err := json.Unmarshal(payload, &is); err != nil {
		return Principal{}, ErrInvalidToken
	}
	first, err := t.store.UseTicket(ctx, is.Principal.Owner(), is.Nonce, time.UnixMilli(is.Expires))
	if err != nil {
		return Principal{}, err
	}
	if !first {
		return Principal{}, ErrInvalidToken
	}
	return is.Principal, nil
}

// TicketMemory is the TicketStore of a single process. Its tickets become invalid when the process ends.
type TicketMemory struct {
	key TicketKey // static

	mu    sync.Mutex
	used  map[string]time.Time // guarded by mu; id → when it expires
	swept time.Time            // guarded by mu
}

// NewTicketMemory returns a store with a random key.
func NewTicketMemory() *TicketMemory {
	return &TicketMemory{key: NewTicketKey(), used: make(map[string]time.Time)}
}

// TicketKey implements TicketStore.
func (m *TicketMemory) TicketKey(context.Context) (TicketKey, error) { return m.key, nil }

// UseTicket implements TicketStore. It ignores the owner, because ids are random.
func (m *TicketMemory) UseTicket(_ context.Context, _ Owner, id string, until time.Time) (first bool, err error) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.swept) > TicketLifetime {
		m.swept = now
		for other, end := range m.used {
			if !now.Before(end) {
				delete(m.used, other)
			}
		}
	}
	if _, used := m.used[id]; used || !now.Before(until) {
		return false, nil
	}
	m.used[id] = until
	return true, nil
}
