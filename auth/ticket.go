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
)

// TicketLifetime is how long a ticket may be used (design section 4).
const TicketLifetime = 30 * time.Second

// TicketStore is what all nodes of a service share, so that a ticket that one of them issued is redeemed by any, once.
// Its methods may be called from any goroutine.
type TicketStore interface {
	// TicketKey returns what seals tickets: made at random by the first call, and the same ever after, for all nodes; unless
	// the store has lost it, and makes another.
	TicketKey(ctx context.Context) (TicketKey, error)
	// UseTicket notes that an owner's ticket is used, and reports whether this is the first time, and not past its end by
	// the store's clock. An error says neither; the ticket may be used up.
	UseTicket(ctx context.Context, owner Owner, id string, until time.Time) (first bool, err error)
}

// TicketKey is a secret. It is not printed.
type TicketKey [32]byte

// NewTicketKey returns a random one.
func NewTicketKey() (key TicketKey) {
	rand.Read(key[:]) // never fails
	return key
}

// String hides the key from logs.
func (k TicketKey) String() string { return "(ticket key)" }

// GoString is String.
func (k TicketKey) GoString() string { return k.String() }

// Tickets issues and redeems tickets: a ticket stands for a principal, once, for a short time. It is sealed with the
// store's key: whoever holds one can neither change it nor read whom it is for. Its methods may be called from any
// goroutine.
type Tickets struct {
	store TicketStore // static

	mu   sync.Mutex
	seal cipher.AEAD // guarded by mu
	read time.Time   // guarded by mu; when the key was last asked for
}

const (
	// keyFresh is how old the key may be with which tickets are sealed, and keyAgain how often it is asked for anew
	// because one cannot be opened.
	keyFresh = 10 * time.Second
	keyAgain = time.Second
)

// NewTickets returns an issuer of the tickets of that store, or the store's error.
func NewTickets(ctx context.Context, store TicketStore) (*Tickets, error) {
	t := &Tickets{store: store}
	return t, t.readKey(ctx)
}

// readKey asks the store for the key.
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

// sealer returns what seals tickets: as the store has it now, or as it had it at most fresh ago. While the store cannot say, it
// stays what it was.
func (t *Tickets) sealer(ctx context.Context, fresh time.Duration) cipher.AEAD {
	t.mu.Lock()
	stale := time.Since(t.read) >= fresh
	if stale {
		t.read = time.Now() // others need not ask meanwhile
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
	payload, err := json.Marshal(ticket{Principal: p, Expires: expires.UnixMilli(), Nonce: randomText(16)})
	if err != nil {
		panic(err) // strings and bytes only: cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(t.sealer(ctx, keyFresh).Seal(nil, nil, payload, nil)), expires
}

// Redeem returns the principal that the ticket stands for, or ErrInvalidToken: where the ticket is malformed, not of our
// store, expired, or was redeemed before, here or by another node. Any other error is the store's.
func (t *Tickets) Redeem(ctx context.Context, text string) (Principal, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	payload, err := t.sealer(ctx, keyFresh).Open(nil, nil, sealed, nil)
	if err != nil { // it may be sealed with a key that the store has had for a moment only
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

// TicketMemory is the TicketStore of a service of one process: its tickets end with it.
type TicketMemory struct {
	key TicketKey // static

	mu    sync.Mutex
	used  map[string]time.Time // guarded by mu; id → when it expires
	swept time.Time            // guarded by mu
}

// NewTicketMemory returns one with a key of its own.
func NewTicketMemory() *TicketMemory {
	return &TicketMemory{key: NewTicketKey(), used: make(map[string]time.Time)}
}

// TicketKey implements TicketStore.
func (m *TicketMemory) TicketKey(context.Context) (TicketKey, error) { return m.key, nil }

// UseTicket implements TicketStore. Ids are random: the owner makes no difference.
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
