package embedded

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
)

func TestTickets_Expired_RefusedAndRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, newPath(t))
		put := func(n byte) auth.Hash {
			_, err := s.PutTicket(context.Background(), auth.Hash{n}, auth.Ticket{Secret: auth.Hash{n}})
			must(t, err)
			return auth.Hash{n}
		}
		first, second := put(1), put(2)
		time.Sleep(auth.TicketLifetime - time.Millisecond)
		if ticket, err := s.TakeTicket(context.Background(), first); err != nil || ticket.Secret != first {
			t.Errorf("a millisecond before the ticket expires, TakeTicket returns %+v, %v", ticket, err)
		}
		time.Sleep(time.Millisecond)
		if ticket, err := s.TakeTicket(context.Background(), second); !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("when the ticket expires, TakeTicket returns %+v, %v; want %v", ticket, err, auth.ErrInvalidToken)
		}
		for n := range byte(100) {
			put(n)
			time.Sleep(auth.TicketLifetime)
		}
		if n := len(s.tickets.live); n > 2 {
			t.Errorf("%d tickets are in memory, want at most 2", n)
		}
		must(t, s.Close())
		if _, err := s.PutTicket(context.Background(), auth.Hash{1}, auth.Ticket{}); err == nil {
			t.Error("PutTicket of a closed store returns no error")
		}
	})
}
