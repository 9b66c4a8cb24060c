package server

import (
	"context"
	"time"

	"parley/stream/wire"
)

const (
	// reconnectAfter is when a client that was told of a drain had better come back.
	reconnectAfter = 500 * time.Millisecond
	// drainEvery is how often a drain looks for sockets that can be closed.
	drainEvery = 50 * time.Millisecond
)

// BeginDrain makes the server say that it is not ready. It still answers.
func (s *Server) BeginDrain() { s.draining.Store(true) }

// DrainSockets tells every socket that the server is going away (where its dialect has a word for that), closes each once nothing that it watches is live,
// and all of them when ctx is done. It returns when none is left, at most goodbye (2 s) later where clients are silent. Call
// BeginDrain before.
func (s *Server) DrainSockets(ctx context.Context) {
	for _, k := range s.open() {
		k.dialect.leave(k)
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	closing := make(map[*socket]bool)
	for {
		over := ctx.Err() != nil
		left := s.open()
		for _, k := range left {
			if !closing[k] && (over || k.idle()) {
				closing[k] = true
				go k.close(wire.CloseDraining) // in parallel, each bounded by goodbye
			}
		}
		if len(left) == 0 {
			break
		}
		if over {
			<-tick.C
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	s.work.Wait()
}

// open returns the sockets that are open.
func (s *Server) open() []*socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	sockets := make([]*socket, 0, len(s.sockets))
	for k := range s.sockets {
		sockets = append(sockets, k)
	}
	return sockets
}
