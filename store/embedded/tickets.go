package embedded

import (
	"context"
	"sync"
	"time"

	"parley/auth"
	"parley/conversation"
)

// tickets holds the tickets that nobody has redeemed. They are in memory only: a restart makes them invalid, and clients create
// new ones. Each ticket costs a request, so the rate limits bound their number. The times have a monotonic clock, so a change of
// the system clock keeps no ticket alive. The methods may be called from any goroutine.
type tickets struct {
	mu    sync.Mutex
	live  map[auth.Hash]liveTicket // guarded by mu
	swept time.Time                // the time at which expired tickets were last removed; guarded by mu
}

type liveTicket struct {
	auth.Ticket
	expires time.Time
}

// PutTicket implements auth.Store.
func (s *Store) PutTicket(ctx context.Context, hash auth.Hash, ticket auth.Ticket) (expires time.Time, err error) {
	err = s.view(ctx, func(*reading) error {
		expires = s.tickets.put(hash, ticket)
		return nil
	})
	return expires, err
}

// TakeTicket implements auth.Store.
func (s *Store) TakeTicket(ctx context.Context, hash auth.Hash) (ticket auth.Ticket, err error) {
	err = s.view(ctx, func(*reading) error {
		ticket, err = s.tickets.take(hash)
		return err
	})
	return ticket, err
}

func (t *tickets) put(hash auth.Hash, ticket auth.Ticket) (expires time.Time) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = make(map[auth.Hash]liveTicket)
	}
	if now.Sub(t.swept) >= auth.TicketLifetime {
		t.swept = now
		for hash, ticket := range t.live {
			if !now.Before(ticket.expires) {
				delete(t.live, hash)
			}
		}
	}
	expires = now.Add(auth.TicketLifetime)
	t.live[hash] = liveTicket{ticket, expires}
	return conversation.TimeOf(expires).Go()
}

func (t *tickets) take(hash auth.Hash) (auth.Ticket, error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	ticket, ok := t.live[hash]
	delete(t.live, hash)
	if !ok || !now.Before(ticket.expires) {
		return auth.Ticket{}, auth.ErrInvalidToken
	}
	return ticket.Ticket, nil
}
