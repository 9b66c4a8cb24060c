package redis

import (
	"context"

	"parley/auth"
)

var ticketKeyScript = newScript("ticket_key", idempotent|durable)

// TicketKey implements auth.TicketStore. The key is never rotated. An attacker who can read the key can read everything else in
// the store too. Besides, a ticket is valid for only 30 s, and its API key is verified when the ticket is redeemed.
func (s *Store) TicketKey(ctx context.Context) (key auth.TicketKey, err error) {
	fresh := auth.NewTicketKey()
	reply, err := s.run(ctx, ticketKeyScript, "", []string{ticketKeyKey}, fresh[:])
	if err != nil {
		return key, err
	}
	if copy(key[:], text(reply)) != len(key) {
		return key, errRecord
	}
	return key, nil
}
