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
)

// Options are what a [Service] needs.
type Options struct {
	Store    conversation.Store
	Nodes    conversation.Nodes // what Store adds if several nodes share it; nil if none do
	Model    stream.Model
	Embedder stream.Embedder       // nil for none: semantic windows compare words alone
	Count    func(text string) int // the tokens of a text
	Timeouts stream.Timeouts       // of the model
	Log      *slog.Logger
}

// Service runs conversations. Methods may be called from any goroutine, between Start and the end of Drain.
type Service struct {
	Options
	*turn.Turns
	*follow.Follower

	hub        *stream.Hub
	summaries  *background.Summaries
	embeddings *background.Embeddings

	loops     sync.WaitGroup // what runs until stopLoops
	stopLoops context.CancelFunc
}

// New returns a service. Nothing runs before Start.
func New(o Options) *Service {
	s := &Service{Options: o, hub: stream.NewHub()}
	s.Follower = follow.New(follow.Options{
		Store: o.Store, Nodes: o.Nodes, Hub: s.hub, Log: o.Log,
		Beginning: func(sessionID string) bool { return s.Turns.Beginning(sessionID) },
		Gone:      func(sessionID string) { s.summaries.Cancel(sessionID) },
	})
	s.summaries = background.NewSummaries(background.SummaryOptions{
		Store: o.Store, Model: o.Model, Timeouts: o.Timeouts, Count: o.Count, Viewers: s.Follower, Log: o.Log,
	})
	s.embeddings = background.NewEmbeddings(background.EmbeddingOptions{Store: o.Store, Embedder: o.Embedder, Log: o.Log})
	s.Turns = turn.New(turn.Options{
		Store: o.Store, Nodes: o.Nodes, Model: o.Model, Timeouts: o.Timeouts, Count: o.Count, Hub: s.hub,
		Follower: s.Follower, Summaries: s.summaries, Embeddings: s.embeddings, Log: o.Log,
	})
	return s
}

// Start joins the other nodes, if there are any, ends the orphans of an earlier process, and begins to remove sessions that
// expire. ctx bounds the start alone.
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

// Drain refuses new turns, lets live ones and summaries end until ctx is done, interrupts the rest, and returns when nothing runs
// any more. It is called once, after Start.
func (s *Service) Drain(ctx context.Context) {
	var drains sync.WaitGroup
	drains.Go(func() { s.Turns.Drain(ctx) })
	drains.Go(func() { s.summaries.Drain(ctx) })
	drains.Go(s.embeddings.Drain)
	drains.Wait()
	s.stopLoops()
	s.loops.Wait()
}

// Topics returns how many sessions are viewed or written here.
func (s *Service) Topics() int { return s.hub.Topics() }

// DeleteSession removes a session for good. Its viewers are shown that, and a live reply stops; it waits up to 5 s for that.
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
	// sweepEvery is the longest time between two searches for expired sessions: other nodes create sessions, which this one only
	// sees by looking.
	sweepEvery = time.Minute
	// sweepRetry is how soon a search that failed is repeated.
	sweepRetry = time.Second
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
		wait := sweepEvery
		if next != 0 {
			wait = max(0, min(wait, time.Until(next.Go())))
		}
		if err != nil {
			wait = sweepRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
