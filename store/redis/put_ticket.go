package redis

import (
	"context"
	"encoding/json"
	"time"

	"parley/auth"
)

// put_ticket is not durable: if a failover loses a ticket, its holder creates another one.
var putTicketScript = newScript("put_ticket", idempotent)

// PutTicket implements auth.Store. In a Cluster, the ticket and the account have different slots, so a pending admission takes a
// round trip of its own.
func (s *Store) PutTicket(ctx context.Context, hash auth.Hash, ticket auth.Ticket) (expires time.Time, err error) {
	if err := s.Admit(ctx); err != nil {
		return time.Time{}, err
	}
	record, err := json.Marshal(ticket)
	if err != nil {
		return time.Time{}, err
	}
	reply, err := s.run(ctx, putTicketScript, "", []string{ticketKey(hash)}, record, auth.TicketLifetime.Milliseconds())
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(integer(reply)).UTC(), nil
}
