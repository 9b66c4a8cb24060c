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

// TicketLifetime is how long a ticket may be used: time enough for a page to open its socket, too short for one that
// was found in a log.
const TicketLifetime = 30 * time.Second

// TicketStore is what all nodes share, so that any node redeems a ticket of any other, once. Its methods may be
// called from any goroutine.
type TicketStore interface {
	// TicketKey returns the key that seals tickets. The first call makes it at random; all nodes get the same one,
	// until the store loses it and makes another.
	TicketKey(ctx context.Context) (TicketKey, error)
	// UseTicket marks a ticket as used. It reports whether this is its first use and before until, by the store's
	// clock. After an error the ticket may be used up.
	UseTicket(ctx context.Context, owner Owner, id string, until time.Time) (first bool, err error)
}

// TicketKey is the secret key that seals tickets. It is not printed.
type TicketKey [32]byte

// NewTicketKey returns a random key.
func NewTicketKey() (key TicketKey) {
	rand.Read(key[:]) // never fails
	return key
}

// String hides the key from logs.
func (k TicketKey) String() string { return "(ticket key)" }

// GoString is String.
func (k TicketKey) GoString() string { return k.String() }

// Tickets issues and redeems tickets. A ticket stands for a principal, once and for [TicketLifetime]. It is sealed
// with the store's key: its holder can neither change it nor read whom it is for. Its methods may be called from any
// goroutine.
type Tickets struct {
	store TicketStore // static

	mu   sync.Mutex
	seal cipher.AEAD // guarded by mu
	read time.Time   // guarded by mu; when the key was last read
}

const (
	// keyFresh is how long a key is used before it is read again, and keyAgain the minimum time between two reads
	// because a ticket could not be opened: a flood of invalid tickets must not become a flood of reads.
	keyFresh = 10 * time.Second
	keyAgain = time.Second
)

// NewTickets returns the tickets of that store, or the store's error.
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
		panic(err) // the secret has a length that it takes
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block that it takes
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seal, t.read = seal, time.Now()
	return nil
}

// sealer returns what seals tickets, with a key that was read at most fresh ago. If the store fails, the old key
// stays.
func (t *Tickets) sealer(ctx context.Context, fresh time.Duration) cipher.AEAD {
	t.mu.Lock()
	stale := time.Since(t.read) >= fresh
	if stale {
		t.read = time.Now() // other callers go on with the old key
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

// Issue returns a ticket for the principal, and when it expires.
func (t *Tickets) Issue(ctx context.Context, p Principal) (text string, expires time.Time) {
	expires = time.Now().Add(TicketLifetime)
	payload, err := json.Marshal(ticket{Principal: p, Expires: expires.UnixMilli(), Nonce: base62.Random(16)})
	if err != nil {
		panic(err) // strings and bytes only: cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(t.sealer(ctx, keyFresh).Seal(nil, nil, payload, nil)), expires
}

// Redeem returns the principal of a ticket. ErrInvalidToken if the ticket is malformed, sealed with another store's
// key, expired, or was redeemed before on any node. Any other error is the store's.
func (t *Tickets) Redeem(ctx context.Context, text string) (Principal, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	payload, err := t.sealer(ctx, keyFresh).Open(nil, nil, sealed, nil)
	if err != nil { // the store may have made another key since
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

// TicketMemory is the TicketStore of a single process: its tickets end with the process.
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
