package storetest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
)

func ticketTests() []test {
	return []test{
		{"ticket is taken only once", ticketOnce},
		{"only one of 20 concurrent takers gets the ticket", racingTicket},
		{"refused request stores no ticket", refusedTicket},
	}
}

func (s *subject) putTicket(t *testing.T, ticket auth.Ticket) (hash auth.Hash) {
	t.Helper()
	hash = newHash()
	expires, err := s.keys.PutTicket(s.ctx, hash, ticket)
	must(t, err, "PutTicket")
	if left := time.Until(expires); left < auth.TicketLifetime/2 || left > 2*auth.TicketLifetime || expires.Location() != time.UTC {
		t.Errorf("the ticket expires at %v, want in %v, in UTC", expires, auth.TicketLifetime)
	}
	return hash
}

func (s *subject) wantNoTicket(t *testing.T, what string, hash auth.Hash) {
	t.Helper()
	ticket, err := s.keys.TakeTicket(s.ctx, hash)
	wantError(t, "TakeTicket of "+what, err, auth.ErrInvalidToken)
	same(t, "the ticket", ticket, auth.Ticket{})
}

func ticketOnce(t *testing.T, s *subject) {
	all := []auth.Ticket{{Secret: newHash()}, {Secret: newHash(), SessionID: "session_0000000000000000"}}
	hashes := []auth.Hash{s.putTicket(t, all[0]), s.putTicket(t, all[1])}
	s.wantNoTicket(t, "an unknown ticket", newHash())
	for i, want := range all {
		ticket, err := s.keys.TakeTicket(s.ctx, hashes[i])
		must(t, err, "TakeTicket")
		same(t, "the ticket", ticket, want)
		s.wantNoTicket(t, "a taken ticket", hashes[i])
	}
}

func racingTicket(t *testing.T, s *subject) {
	want := auth.Ticket{Secret: newHash()}
	hash := s.putTicket(t, want)
	var taken atomic.Int32
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			switch ticket, err := s.keys.TakeTicket(s.ctx, hash); {
			case err == nil && ticket == want:
				taken.Add(1)
			case !errors.Is(err, auth.ErrInvalidToken):
				t.Errorf("TakeTicket: %+v, %v", ticket, err)
			}
		})
	}
	work.Wait()
	same(t, "the number of takers that got the ticket", taken.Load(), 1)
}

// refusedTicket checks that the rate limit bounds the number of tickets.
func refusedTicket(t *testing.T, s *subject) {
	p, hash := s.key(t), newHash()
	ctx, _ := s.request(p, limit.TierLimits{RequestsPerMinute: 1, TokensPerMinute: 1000})
	must(t, s.keys.Admit(ctx), "Admit")
	_, err := s.keys.PutTicket(ctx, newHash(), auth.Ticket{Secret: p.Secret})
	must(t, err, "PutTicket of the admitted request")
	ctx, _ = s.request(p, limit.TierLimits{RequestsPerMinute: 1, TokensPerMinute: 1000})
	_, err = s.keys.PutTicket(ctx, hash, auth.Ticket{Secret: p.Secret})
	refused(t, "PutTicket of another request", err, limit.ByRequests)
	s.wantNoTicket(t, "the refused request", hash)
}
