package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// TicketLifetime is how long a ticket may be used (design section 4).
const TicketLifetime = 30 * time.Second

// Tickets issues and redeems tickets: a ticket stands for a principal, once, for a short time. It is signed with a
// secret of this process. Its methods may be called from any goroutine.
type Tickets struct {
	secret [32]byte // static

	mu       sync.Mutex
	redeemed map[string]time.Time // guarded by mu; nonce → when it expires
	swept    time.Time            // guarded by mu
}

// NewTickets returns an issuer with a secret of its own.
func NewTickets() *Tickets {
	t := &Tickets{redeemed: make(map[string]time.Time)}
	rand.Read(t.secret[:]) // never fails
	return t
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
		panic(err) // strings only: cannot fail
	}
	return encode(payload) + "." + encode(t.sign(payload)), expires
}

// Redeem returns the principal that the ticket stands for, or ErrInvalidToken: where the ticket is malformed, not
// ours, expired, or was redeemed before.
func (t *Tickets) Redeem(text string) (Principal, error) {
	left, right, _ := strings.Cut(text, ".")
	payload, err := base64.RawURLEncoding.DecodeString(left)
	signature, err2 := base64.RawURLEncoding.DecodeString(right)
	if err != nil || err2 != nil || !hmac.Equal(signature, t.sign(payload)) {
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

func (t *Tickets) sign(payload []byte) []byte {
	mac := hmac.New(sha256.New, t.secret[:])
	mac.Write(payload)
	return mac.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
