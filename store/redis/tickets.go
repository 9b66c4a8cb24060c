package redis

import (
	"context"
	"time"

	"parley/auth"
)

var (
	ticketKeyScript = newScript("ticket_key", idempotent|durable)
	useTicketScript = newScript("use_ticket", counts|durable)
)

// TicketKey implements auth.TicketStore. The key is never rotated: a ticket lives for 30 seconds, and names a key that is
// asked for when the ticket is redeemed. Who can read it can read all else in the store as well.
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

// UseTicket implements auth.TicketStore.
func (s *Store) UseTicket(ctx context.Context, owner auth.Owner, id string, until time.Time) (first bool, err error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, useTicketScript, tag, []string{ticketUseKey(tag, id)}, until.UnixMilli())
	return integer(reply) == 1, err
}
