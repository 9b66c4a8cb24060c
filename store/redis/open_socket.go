package redis

import (
	"context"

	"parley/auth"
	"parley/auth/limit"
)

var openSocketScript = newScript("open_socket", admits)

// OpenSocket implements auth.Store.
func (s *Store) OpenSocket(ctx context.Context, owner auth.Owner) (close func(), err error) {
	tag, most, lease := ownerTag(owner), auth.LimitsOf(ctx).Sockets, s.sockets.lease.Milliseconds()
	with := s.sockets.add(owner)
	reply, err := s.run(ctx, openSocketScript, tag, []string{socketsKey(tag)}, s.node, with.change, with.count, most, lease)
	if used, full := reply.(int64); full {
		err = auth.QuotaRefused(ctx, limit.QuotaSockets, used)
	}
	if err != nil {
		s.sockets.remove(owner) // renew corrects the stored count, if the script has run but its reply was lost
		return nil, err
	}
	return func() {
		s.sockets.remove(owner)
		s.sendSockets()
	}, nil
}
