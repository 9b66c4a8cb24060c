package redis

import (
	"context"
	"encoding/json"

	"parley/auth"
)

// take_ticket is durable: a failover must not bring back a ticket that was redeemed.
var takeTicketScript = newScript("take_ticket", durable)

// TakeTicket implements auth.Store.
func (s *Store) TakeTicket(ctx context.Context, hash auth.Hash) (ticket auth.Ticket, err error) {
	reply, err := s.run(ctx, takeTicketScript, "", []string{ticketKey(hash)})
	if err == nil && reply == nil {
		err = auth.ErrInvalidToken
	}
	if err == nil && json.Unmarshal([]byte(text(reply)), &ticket) != nil {
		err = errRecord
	}
	return ticket, err
}
