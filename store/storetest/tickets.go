package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/auth"
	"parley/conversation"
)

func ticketTests() []test {
	return []test{
		{"ticket key never changes", oneTicketKey},
		{"only one of 20 concurrent uses of a ticket succeeds", racingTicket},
		{"expired ticket is refused", lateTicket},
	}
}

func oneTicketKey(t *testing.T, s *subject) {
	first, err := s.tickets.TicketKey(s.ctx)
	must(t, err, "TicketKey")
	if first == (auth.TicketKey{}) {
		t.Error("the key is not random")
	}
	again, err := s.tickets.TicketKey(s.ctx)
	must(t, err, "TicketKey")
	if again != first {
		t.Error("the key has changed")
	}
}

// useTicket reports whether the subject is the first to use the ticket.
func (s *subject) useTicket(t *testing.T, id string, until time.Time) bool {
	t.Helper()
	first, err := s.tickets.UseTicket(s.ctx, s.keyOwner(), id, until)
	if err != nil {
		t.Errorf("UseTicket: %v", err)
	}
	return first
}

func racingTicket(t *testing.T, s *subject) {
	id, until := conversation.RandomText(16), time.Now().Add(time.Minute)
	var first atomic.Int32
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			if s.useTicket(t, id, until) {
				first.Add(1)
			}
		})
	}
	work.Wait()
	same(t, "the number of uses that succeeded", first.Load(), 1)
	same(t, "whether another ticket can be used", s.useTicket(t, conversation.RandomText(16), until), true)
}

func lateTicket(t *testing.T, s *subject) {
	same(t, "whether an expired ticket can be used", s.useTicket(t, conversation.RandomText(16), time.Now().Add(-time.Minute)), false)
}
