package redis

import (
	"context"
	"time"

	"parley/auth"
)

var useTicketScript = newScript("use_ticket", durable)

// UseTicket implements auth.TicketStore.
func (s *Store) UseTicket(ctx context.Context, owner auth.Owner, id string, until time.Time) (first bool, err error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, useTicketScript, tag, []string{ticketUseKey(tag, id)}, until.UnixMilli())
	return integer(reply) == 1, err
}
