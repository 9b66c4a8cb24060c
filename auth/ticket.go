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

// TicketLifetime is the time for which a ticket is valid. It is long enough for a page to open its socket, and too short
// for somebody who finds the ticket in a log.
const TicketLifetime = 30 * time.Second

// TicketStore holds the data about tickets that all nodes share: the key, and the ids of used tickets. So any node can
// redeem a ticket of another node, and each ticket works only once. The methods of a TicketStore may be called from any
// goroutine.
type TicketStore interface {
	// TicketKey returns the key that encrypts tickets. The first call creates a random key. Later calls return the same
	// key on all nodes. If the store loses the key, the next call creates another key.
	TicketKey(ctx context.Context) (TicketKey, error)
	// UseTicket marks a ticket as used. until is the expiry of the ticket. first is true if the ticket was unused and has
	// not expired by the store's clock. After an error, the ticket may or may not be marked.
	UseTicket(ctx context.Context, owner Owner, id string, until time.Time) (first bool, err error)
}

// TicketKey is the secret key that encrypts tickets. The fmt package prints "(ticket key)" instead of the bytes.
type TicketKey [32]byte

// NewTicketKey returns a random key.
func NewTicketKey() (key TicketKey) {
	rand.Read(key[:]) // never fails
	return key
}

// String returns "(ticket key)", so that logs do not contain the key.
func (k TicketKey) String() string { return "(ticket key)" }

// GoString returns the same as String.
func (k TicketKey) GoString() string { return k.String() }

// Tickets issues and redeems tickets. A ticket authenticates a principal once, within [TicketLifetime]. It is encrypted
// with the store's key, so its holder can neither read nor change it. The methods of Tickets may be called from any
// goroutine.
type Tickets struct {
	store TicketStore // static

	mu   sync.Mutex
	seal cipher.AEAD // guarded by mu
	read time.Time   // the time of the last read of the key; guarded by mu
}

const (
	// keyFresh is the time after which Tickets reads the key from the store again. If a ticket cannot be decrypted, Tickets
	// reads the key earlier, but not within keyAgain after the last read: many invalid tickets must not cause many reads.
	keyFresh = 10 * time.Second
	keyAgain = time.Second
)

// NewTickets returns Tickets for a store. It reads the key, and returns the error of the store if this fails.
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

// sealer returns the cipher that encrypts and decrypts tickets. If the last read of the key is older than fresh, sealer
// first reads the key again. If the store fails, sealer uses the old key.
func (t *Tickets) sealer(ctx context.Context, fresh time.Duration) cipher.AEAD {
	t.mu.Lock()
	stale := time.Since(t.read) >= fresh
	if stale {
		t.read = time.Now() // until the read has finished, other callers use the old key
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
		panic(err) // cannot happen: a ticket contains only strings, numbers, times and bytes
	}
	return base64.RawURLEncoding.EncodeToString(t.sealer(ctx, keyFresh).Seal(nil, nil, payload, nil)), expires
}

// Redeem returns the principal of a ticket, and marks the ticket as used. It returns ErrInvalidToken if the ticket is
// malformed, has expired, comes from another store, or was redeemed before on any node. Any other error is an error of the
// store.
func (t *Tickets) Redeem(ctx context.Context, text string) (Principal, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	payload, err := t.sealer(ctx, keyFresh).Open(nil, nil, sealed, nil)
	if err != nil { // perhaps the store has created another key since the last read
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

// TicketMemory is a TicketStore in memory, for a single process. Tickets become invalid when the process ends.
type TicketMemory struct {
	key TicketKey // static

	mu    sync.Mutex
	used  map[string]time.Time // maps the id of a used ticket to its expiry; guarded by mu
	swept time.Time            // the time at which expired tickets were last removed from used; guarded by mu
}

// NewTicketMemory returns a TicketMemory with a random key.
func NewTicketMemory() *TicketMemory {
	return &TicketMemory{key: NewTicketKey(), used: make(map[string]time.Time)}
}

// TicketKey implements TicketStore.
func (m *TicketMemory) TicketKey(context.Context) (TicketKey, error) { return m.key, nil }

// UseTicket implements TicketStore. It ignores the owner: ids are random, so two owners never have the same id.
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
