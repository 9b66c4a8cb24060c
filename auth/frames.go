package auth

import (
	"context"
	"sync"
	"time"

	"parley/auth/limit"
)

// Frames counts the frames that clients send on WebSockets, for each API key (limit.TierLimits.FramesPerMinute). It holds a
// meter for each key that has an open socket in this process. The methods of Frames may be called from any goroutine.
type Frames struct {
	limits *Limits // static
	store  Store   // static

	mu     sync.Mutex
	meters map[usedKey]*frameMeter // guarded by mu
}

// frameMeter is the meter of one key.
type frameMeter struct {
	sockets int // number of open sockets; guarded by Frames.mu

	mu    sync.Mutex // held while the store is asked: the key's other sockets then wait for the lease, too
	meter limit.FrameMeter
}

// frameTimeout is the timeout of a request to the store for a lease. A store may be configured with a timeout of a minute. A
// frame must not wait that long, because the node can count without the store.
const frameTimeout = 2 * time.Second

// NewFrames returns Frames that count in the store of k.
func (k *Keys) NewFrames(limits *Limits) *Frames {
	return &Frames{limits: limits, store: k.store, meters: make(map[usedKey]*frameMeter)}
}

// SocketFrames counts the frames of one socket.
type SocketFrames struct {
	// static
	frames *Frames
	key    usedKey
	meter  *frameMeter
	limit  int
	share  int           // the part of limit that this socket may use
	own    *limit.Window // the frames of this socket, if share is less than limit; only the socket's reader uses it
}

// A socket that may access only one session gets the limit of its key divided by sessionShare. Such a socket usually belongs to
// the page of one end user. So an end user cannot use up the frames of all others.
const sessionShare = 10

// Open returns a SocketFrames for a socket of the principal. The caller must call Close when the socket has ended.
func (f *Frames) Open(p Principal) *SocketFrames {
	key := usedKey{p.Owner(), p.KeyID}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.meters[key]
	if m == nil {
		m = new(frameMeter)
		f.meters[key] = m
	}
	m.sockets++
	s := &SocketFrames{frames: f, key: key, meter: m, limit: f.limits.Admission(p).Limits.FramesPerMinute}
	if p.SessionID != "" {
		s.share, s.own = max(1, s.limit/sessionShare), new(limit.Window)
	}
	return s
}

// Close ends the count of the socket. When the last socket of a key has closed, the unused frames of the key's lease stay
// counted for a minute.
func (s *SocketFrames) Close() {
	s.frames.mu.Lock()
	defer s.frames.mu.Unlock()
	if s.meter.sockets--; s.meter.sockets == 0 {
		delete(s.frames.meters, s.key)
	}
}

// Take counts a frame. Only one goroutine may call Take. If the limit is reached, Take returns a [*LimitError]. Take asks the
// store only for a new lease. If the store cannot be reached, Take counts locally: each node then admits about the limit
// (limit.FrameMeter.Alone).
func (s *SocketFrames) Take() error {
	if s.limit == 0 {
		return nil
	}
	if s.own != nil {
		if wait := s.own.Lease(time.Now(), limit.FrameTake{Limit: s.share, Want: 1}).Wait; wait > 0 {
			return refusedFrame(s.share, wait)
		}
	}
	m := s.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	wait, ok := m.meter.Take(time.Now())
	if !ok {
		wait = m.meter.Granted(s.lease())
	}
	if wait == 0 {
		return nil
	}
	return refusedFrame(s.limit, wait)
}

// refusedFrame returns the error for a frame above the limit most. The next frame fits after wait seconds.
func refusedFrame(most, wait int) error {
	return &LimitError{Decision: limit.Decide(limit.Status{By: limit.ByFrames, Limit: most, Used: most, Wait: wait})}
}

// lease asks the store for a lease, and returns it with the time just before the store was asked. The caller must hold meter.mu.
func (s *SocketFrames) lease() (asked time.Time, lease limit.FrameLease) {
	ctx, cancel := context.WithTimeout(context.Background(), frameTimeout)
	defer cancel()
	asked = time.Now()
	lease, err := s.frames.store.TakeFrames(ctx, s.key.owner, s.key.id, s.meter.meter.Next(asked, s.limit))
	if err != nil {
		now := time.Now()
		return now, s.meter.meter.Alone(now, s.limit)
	}
	return asked, lease
}
