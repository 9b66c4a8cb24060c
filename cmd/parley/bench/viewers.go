package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Viewers runs one caller. n viewers read its replies, each on a socket of its own. The report counts a token once for each
// viewer that got it.
func Viewers(ctx context.Context, o Options, n int, reply Reply) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	session, err := r.sessions.create(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := r.post(ctx, session.id, Reply{Tokens: 1}); err != nil { // loads the vocabulary before the memory is read
		return nil, fmt.Errorf("the first turn failed: %w", err)
	}
	idle := r.resident()
	opened, err := r.open(ctx, n, session.id)
	defer opened.drop()
	if err != nil {
		return nil, err
	}
	v := &viewing{run: r, ends: make(chan ending, n)}
	var readers sync.WaitGroup
	defer readers.Wait()
	defer opened.drop()
	for _, s := range opened.all {
		readers.Go(func() { v.read(s, opened) })
	}
	r.Duration = max(o.Duration, 2*reply.length()) // so that a reply ends in the measured time
	report, err := r.drive(ctx, workloadViewers, 1, 0, func(ctx context.Context) error { return v.turn(ctx, session.id, n, reply) })
	if report != nil && report.Server != nil {
		report.Server.ResidentIdle = idle
	}
	return report.with(n, reply, "viewer"), err
}

// viewing is a run of Viewers.
type viewing struct {
	*run
	ends chan ending // one for each viewer and turn
}

// read reads replies until the socket breaks.
func (v *viewing) read(s *socket, opened *sockets) {
	for {
		got := 0
		end, err := s.follow(func(n int) {
			v.frames.Add(1)
			v.bytes.Add(int64(n))
			got += n
		})
		if err != nil && opened.dropped.Load() {
			return
		}
		if err != nil {
			v.fail(err)
			return
		}
		v.endedBytes.Add(int64(got))
		v.endedTokens.Add(int64(end.tokens))
		v.ends <- end
	}
}

// turn sends a message, and waits until all viewers have the end of the reply.
func (v *viewing) turn(ctx context.Context, session string, n int, reply Reply) error {
	begun := time.Now()
	body := map[string]any{"content": reply.message(), "streaming": true}
	if err := v.client.do(ctx, "POST", "/v1/sessions/"+session+"/messages", body, nil); err != nil {
		return err
	}
	var last ending
	for range n {
		select {
		case last = <-v.ends:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	v.ended(begun, 0, ending{status: last.status})
	return nil
}
