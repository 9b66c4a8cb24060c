package embedded

import (
	"context"
	"sync"

	"parley/auth"
	"parley/auth/limit"
)

// sockets counts the open sockets of each owner. The counts are in memory only, because all sockets belong to this process.
// The methods may be called from any goroutine.
type sockets struct {
	mu   sync.Mutex
	open map[auth.Owner]int64 // guarded by mu; without zeros
}

// OpenSocket implements auth.Store.
func (s *Store) OpenSocket(ctx context.Context, owner auth.Owner) (close func(), err error) {
	most := auth.LimitsOf(ctx).Sockets
	err = s.view(ctx, func(*reading) error {
		if used, ok := s.sockets.add(owner, most); !ok {
			return auth.QuotaRefused(ctx, limit.QuotaSockets, used)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return func() { s.sockets.remove(owner) }, nil
}

// add counts a socket, unless the owner has already reached the maximum. most is the maximum; 0 means no limit. used is the
// number of sockets before the call.
func (o *sockets) add(owner auth.Owner, most int64) (used int64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if used = o.open[owner]; most > 0 && used >= most {
		return used, false
	}
	if o.open == nil {
		o.open = make(map[auth.Owner]int64)
	}
	o.open[owner] = used + 1
	return used, true
}

func (o *sockets) remove(owner auth.Owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[owner]--; o.open[owner] == 0 {
		delete(o.open, owner)
	}
}

func (o *sockets) count(owner auth.Owner) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[owner]
}
