package auth

import (
	"context"
	"time"

	"parley/auth/base62"
)

// TicketLifetime is the time for which a ticket is valid. It is long enough for a page to open its socket, and too short
// for somebody who finds the ticket in a log. It also bounds the number of tickets in a store: each ticket costs a request,
// so an owner never has more tickets than the requests that its limit admits in a minute.
const TicketLifetime = 30 * time.Second

// ticketLength is the number of characters of a ticket. They are as random as the characters of a secret: 160 bits.
const ticketLength = bodyLength

// Ticket is the record of a ticket in the store. The store finds the record by the hash of the ticket's text, and does not
// have the text. So nobody can open a socket with a copy of the store. Everything else about the caller is in the record
// of the key, which is read when the ticket is redeemed.
type Ticket struct {
	// Secret is the hash of the secret that created the ticket. For the declared key, see [Keys.declaredTicket].
	Secret    Hash   `json:"secret"`
	SessionID string `json:"sessionId,omitempty"` // the only session that the ticket opens; "" means any session
}

// IssueTicket creates a ticket for the secret and the session of p, and returns its text and its expiry. A ticket
// authenticates a caller once, on any node. If the admission in ctx is pending, it is decided first. After an error,
// the store may have a ticket, but nobody has its text.
func (k *Keys) IssueTicket(ctx context.Context, p Principal) (text string, expires time.Time, err error) {
	text = base62.Random(ticketLength)
	ticket := Ticket{Secret: p.Secret, SessionID: p.SessionID}
	if p.Secret == (Hash{}) {
		ticket.Secret = k.declaredTicket(text)
	}
	if expires, err = k.store.PutTicket(ctx, HashOf(text), ticket); err != nil {
		return "", time.Time{}, err
	}
	return text, expires, nil
}

// RedeemTicket removes a ticket. It returns the principal that [Keys.Verify] would return now for the secret that created the
// ticket, with the session of the ticket. It returns ErrInvalidToken if the ticket is malformed, unknown or expired, if any
// node has redeemed the ticket before, and if the secret no longer works. Any other error is an error of the store.
func (k *Keys) RedeemTicket(ctx context.Context, text string) (Principal, error) {
	if len(text) != ticketLength {
		return Principal{}, ErrInvalidToken
	}
	ticket, err := k.store.TakeTicket(ctx, HashOf(text))
	if err != nil {
		return Principal{}, err
	}
	p := k.declared
	if k.declaredHash == (Hash{}) || ticket.Secret != k.declaredTicket(text) {
		if p, err = k.resolve(ctx, ticket.Secret, time.Now()); err != nil {
			return Principal{}, err
		}
	}
	p.SessionID = ticket.SessionID
	return p, nil
}

// declaredTicket returns Ticket.Secret for a ticket of the declared key. It is a hash of the ticket's text and of the
// declared secret. The store does not have the text, so nobody can check guesses of a weak declared secret with a copy of
// the store. Nodes that declare another key refuse the ticket.
func (k *Keys) declaredTicket(text string) Hash { return HashOf(text + string(k.declaredHash[:])) }
