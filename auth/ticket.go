package auth

import (
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

// Tickets issues and redeems tickets: a ticket stands for a principal, once, for a short time. It is sealed with a
// secret of this process: whoever holds one can neither change it nor read whom it is for. Its methods may be called
// from any goroutine.
type Tickets struct {
	seal cipher.AEAD // static

	mu       sync.Mutex
	redeemed map[string]time.Time // guarded by mu; nonce → when it expires
	swept    time.Time            // guarded by mu
}

// NewTickets returns an issuer with a secret of its own.
func NewTickets() *Tickets {
	var secret [32]byte
	rand.Read(secret[:]) // never fails
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the secret has a length that it takes
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block that it takes
	}
	return &Tickets{seal: seal, redeemed: make(map[string]time.Time)}
}

type ticket struct {
	Principal Principal
	Expires   int64 // Unix milliseconds
	Nonce     string
}

// Issue returns a ticket for the principal, and when it expires.
func (t *Tickets) Issue(p Principal) (text string, expires time.Time) {
	expires = time.Now().Add(TicketLifetime)
	payload, err := json.Marshal(ticket{Principal: p, Expires: expires.UnixMilli(), Nonce: randomText(16)})
	if err != nil {
		panic(err) // strings and bytes only: cannot fail
	}
	return base64.RawURLEncoding.EncodeToString(t.seal.Seal(nil, nil, payload, nil)), expires
}

// Redeem returns the principal that the ticket stands for, or ErrInvalidToken: where the ticket is malformed, not
// ours, expired, or was redeemed before.
func (t *Tickets) Redeem(text string) (Principal, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	payload, err := t.seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return Principal{}, ErrInvalidToken
	}
	var is ticket
	if err := json.Unmarshal(payload, &is); err != nil {
		return Principal{}, ErrInvalidToken
	}
	now := time.Now()
	expires := time.UnixMilli(is.Expires)
	if !now.Before(expires) || !t.use(is.Nonce, expires, now) {
		return Principal{}, ErrInvalidToken
	}
	return is.Principal, nil
}

// use marks the nonce as redeemed, and reports whether it was not before.
func (t *Tickets) use(nonce string, expires, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.swept) > TicketLifetime {
		t.swept = now
		for n, e := range t.redeemed {
			if !now.Before(e) {
				delete(t.redeemed, n)
			}
		}
	}
	if _, used := t.redeemed[nonce]; used {
		return false
	}
	t.redeemed[nonce] = expires
	return true
}
