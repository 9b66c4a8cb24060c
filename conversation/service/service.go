package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"parley/conversation"
	"parley/conversation/background"
	"parley/conversation/follow"
	"parley/conversation/turn"
	"parley/stream"
	"parley/stream/models"
)

// Options are the dependencies of a [Service].
type Options struct {
	Store    conversation.Store
	Nodes    conversation.Nodes // the further operations of Store if several nodes can share it, otherwise nil
	Models   *models.Set
	Embedder stream.Embedder       // nil for none; then semantic windows compare only words
	Count    func(text string) int // returns the number of tokens of a text
	Timeouts stream.Timeouts       // of the model
	Log      *slog.Logger
	Now      func() time.Time // the wall clock; nil means time.Now
	// MaxReplyBytes is the maximum size of a reply's text in bytes; 0 means window.DefaultReplyBytes.
	MaxReplyBytes int
	// MaxInFlight is the maximum number of sends in flight on this node; 0 means no limit.
	MaxInFlight int
}

// Service runs conversations. Methods may be called from any goroutine, after Start has returned and before Drain
// returns.
type Service struct {
	Options
	*turn.Turns
	*follow.Follower

	hub        *stream.Hub
	summaries  *background.Summaries
	embeddings *background.Embeddings

	loops     sync.WaitGroup // the goroutines that run until stopLoops is called
	stopLoops context.CancelFunc
}

// New returns a Service. It runs no goroutine before Start.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{Options: o, hub: stream.NewHub()}
	s.Follower = follow.New(follow.Options{
		Store: o.Store, Nodes: o.Nodes, Hub: s.hub, Log: o.Log,
		Beginning: func(sessionID string) bool { return s.Turns.Beginning(sessionID) },
		Gone:      func(sessionID string) { s.summaries.Cancel(sessionID) },
	})
	s.summaries = background.NewSummaries(background.SummaryOptions{
		Store: o.Store, Models: o.Models, Timeouts: o.Timeouts, MaxBytes: o.MaxReplyBytes, Count: o.Count, Viewers: s.Follower, Log: o.Log,
	})
	s.embeddings = background.NewEmbeddings(background.EmbeddingOptions{Store: o.Store, Embedder: o.Embedder, Log: o.Log})
	s.Turns = turn.New(turn.Options{
		Store: o.Store, Nodes: o.Nodes, Models: o.Models, Timeouts: o.Timeouts, MaxBytes: o.MaxReplyBytes, Count: o.Count, Hub: s.hub,
		Follower: s.Follower, Summaries: s.summaries, Embeddings: s.embeddings, Log: o.Log, MaxInFlight: o.MaxInFlight,
	})
	return s
}

// Start joins the nodes that share the store, and ends orphans. It then starts the goroutines that remove expired
// sessions, follow other nodes and look for orphans; Drain stops them. ctx bounds only Start itself.
func (s *Service) Start(ctx context.Context) error {
	if s.Nodes != nil {
		if err := s.Nodes.Join(ctx, s.Notify); err != nil {
			return fmt.Errorf("joining the other nodes: %w", err)
		}
	}
	if err := s.EndOrphans(ctx); err != nil {
		return fmt.Errorf("ending orphaned replies: %w", err)
	}
	ctx, s.stopLoops = context.WithCancel(context.WithoutCancel(ctx))
	s.loops.Go(func() { s.removeExpired(ctx) })
	s.loops.Go(func() { s.Follower.Run(ctx) })
	s.loops.Go(func() { s.RunOrphans(ctx) })
	return nil
}

// Drain refuses new turns. Until ctx is done, live turns and summary jobs may end; then Drain stops them. Drain returns
// when no goroutine of the service runs. It must be called once, after Start.
func (s *Service) Drain(ctx context.Context) {
	var drains sync.WaitGroup
	drains.Go(func() { s.Turns.Drain(ctx) })
	drains.Go(func() { s.summaries.Drain(ctx) })
	drains.Go(s.embeddings.Drain)
	drains.Wait()
	s.stopLoops()
	s.loops.Wait()
}

// Topics returns the number of sessions that have viewers or a live reply on this node, or that this node still
// follows.
func (s *Service) Topics() int { return s.hub.Topics() }

// DeleteSession removes a session for good. Its viewers see the event Deleted, and a live reply stops. If this node
// writes the reply, DeleteSession waits up to 5 s until the reply has stopped.
func (s *Service) DeleteSession(ctx context.Context, owner conversation.Owner, sessionID string) error {
	session, err := s.Store.DeleteSession(ctx, owner, sessionID)
	if err != nil {
		return err
	}
	s.summaries.Cancel(sessionID)
	s.hub.Remove(sessionID, stream.Deleted)
	s.StopAndWait(sessionID, session.LiveReply, stream.ErrCancelled)
	return nil
}

const (
	// sweepEvery is the longest time between two calls of RemoveExpired. Other nodes also create sessions, and only
	// RemoveExpired tells this node when these sessions expire.
	sweepEvery = time.Minute
	// sweepRetry is the delay before a failed call of RemoveExpired is retried. It is also the shortest time between two
	// calls if the store's clock is behind the clock of this node.
	sweepRetry = time.Second
	// clockEvery is the time between two looks at the wall clock. A timer does not notice that the clock is set, and does
	// not run while the machine is suspended.
	clockEvery = time.Second
)

// removeExpired removes sessions when they expire, until ctx is done.
func (s *Service) removeExpired(ctx context.Context) {
	for {
		removed, next, err := s.Store.RemoveExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("expired sessions could not be removed; retrying", "error", err)
		}
		for _, r := range removed {
			s.summaries.Cancel(r.Session.ID)
			s.hub.Remove(r.Session.ID, stream.Expired)
			s.StopReply(r.Session.ID, r.Session.LiveReply, stream.ErrCancelled)
		}
		longest := sweepEvery
		if now := conversation.TimeOf(s.Now()); err != nil || next != 0 && next <= now {
			longest, next = sweepRetry, 0
		}
		if !s.awaitTime(ctx, next, longest) {
			return
		}
	}
}

// awaitTime waits until the wall clock shows the time at. It returns earlier when longest has passed, by a timer or by
// the wall clock. If at is 0, awaitTime waits for longest. It returns false if ctx is done first.
func (s *Service) awaitTime(ctx context.Context, at conversation.Time, longest time.Duration) bool {
	if latest := conversation.TimeOf(s.Now()).Add(longest); at == 0 || at > latest {
		at = latest
	}
	for end := time.Now().Add(longest); ; {
		wait := min(time.Until(end), at.Go().Sub(s.Now()))
		if wait <= 0 {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(min(wait, clockEvery)):
		}
	}
}
