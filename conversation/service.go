package conversation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"parley/stream"
)

// Options are what a Service is made of.
type Options struct {
	Store    Store
	Nodes    Nodes // what Store offers where several nodes share it; nil where none do
	Model    stream.Model
	Embedder stream.Embedder       // nil for none: semantic windows compare words alone
	Count    func(text string) int // the tokens of a text
	Timeouts stream.Timeouts
	Log      *slog.Logger
}

const (
	// journalTick is how often the new text of live replies goes to the store (design section 3).
	journalTick = 50 * time.Millisecond
	// sweepEvery is how often expired sessions are looked for at least; the next one due is removed on time.
	sweepEvery = time.Minute
)

// Service runs conversations on a store and a model. Its methods may be called from any goroutine, between Start and
// the end of Drain.
type Service struct {
	// static
	Options
	hub      *stream.Hub
	journal  *stream.Journal[TurnKey]
	follower *follower // nil without Nodes

	draining chan struct{} // closed when Drain begins

	mu        sync.Mutex
	turns     map[string]*turn    // guarded by mu; live here, by the reply's id
	beginning map[string]int      // guarded by mu; how many turns may be about to join turns, by session
	begins    *sync.Cond          // on mu; when beginning goes down
	foldings  map[string]*folding // guarded by mu; under way here, by session

	// embedding holds one for each call to the Embedder behind a reply, and embedFailing whether the last call of any kind failed.
	embedding     chan struct{}
	embedFailing  atomic.Bool
	embedCtx      context.Context // of these calls; stopEmbedding ends it
	stopEmbedding context.CancelFunc

	work   sync.WaitGroup // live turns, sends that wait for one, foldings, and embeddings behind replies
	leave  context.CancelFunc
	behind sync.WaitGroup // what runs in the background until leave
}

// NewService returns a service; nothing runs before Start.
func NewService(options Options) *Service {
	s := &Service{
		Options:   options,
		hub:       stream.NewHub(),
		journal:   stream.NewJournal(options.Store, journalTick, options.Log),
		turns:     make(map[string]*turn),
		beginning: make(map[string]int),
		foldings:  make(map[string]*folding),
		draining:  make(chan struct{}),
		embedding: make(chan struct{}, embedsAtOnce),
	}
	s.embedCtx, s.stopEmbedding = context.WithCancel(context.Background())
	s.begins = sync.NewCond(&s.mu)
	if options.Nodes != nil {
		s.follower = newFollower(s)
	}
	return s
}

// Start ends the replies that an earlier process left behind, and begins to remove sessions whose time has come. Where
// several nodes share the store, it joins them.
func (s *Service) Start(ctx context.Context) error {
	if s.follower != nil {
		if err := s.Nodes.Join(ctx, s.follower.poke); err != nil {
			return fmt.Errorf("joining the other nodes: %w", err)
		}
	}
	if err := s.endOrphans(ctx); err != nil {
		return fmt.Errorf("ending the replies of the last run: %w", err)
	}
	ctx, s.leave = context.WithCancel(context.WithoutCancel(ctx))
	s.behind.Go(func() { s.removeExpired(ctx) })
	if s.follower != nil {
		s.behind.Go(func() { s.follower.run(ctx) })
		s.behind.Go(func() { s.watchOrphans(ctx) })
	}
	return nil
}

// orphansEvery is how often each node looks for the turns of nodes that are gone (design section 3, a node that dies).
const orphansEvery = time.Second

// watchOrphans ends the turns that other nodes leave behind, until ctx is done.
func (s *Service) watchOrphans(ctx context.Context) {
	failing := false
	for every := time.NewTicker(orphansEvery); ; {
		select {
		case <-ctx.Done():
			every.Stop()
			return
		case <-every.C:
		}
		err := s.endOrphans(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.Log.Error("what other nodes left behind cannot be looked for; it is tried again until it can", "error", err)
		}
		failing = err != nil
	}
}

func (s *Service) endOrphans(ctx context.Context) error {
	n, err := s.Store.EndOrphans(ctx, s.Count)
	if n > 0 {
		s.Log.Info("replies that were left behind are ended as interrupted", "replies", n)
	}
	return err
}

// Drain refuses new turns, lets the live ones and what is being folded end until ctx is done, ends the rest as
// interrupted, and returns when nothing runs any more.
func (s *Service) Drain(ctx context.Context) {
	s.mu.Lock()
	close(s.draining)
	s.mu.Unlock()
	s.stopEmbedding() // what is not embedded is caught up with behind a later reply
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.mu.Lock()
		for _, t := range s.turns {
			t.cancel(stream.ErrInterrupted)
		}
		for _, x := range s.foldings {
			x.cancel()
		}
		s.mu.Unlock()
		<-done
	}
	s.journal.Wait()
	s.leave()
	s.behind.Wait()
}

// Draining is closed when the service begins to go away.
func (s *Service) Draining() <-chan struct{} { return s.draining }

// LiveReplies returns how many replies are being written here.
func (s *Service) LiveReplies() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.turns)
}

// Topics returns how many sessions are watched or written here.
func (s *Service) Topics() int { return s.hub.Topics() }

// IsLive reports whether a reply of the session is being written here.
func (s *Service) IsLive(sessionID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.turns {
		if t.key.SessionID == sessionID {
			return true
		}
	}
	return false
}

// CreateSession makes a session, or returns the one that the same request made before.
func (s *Service) CreateSession(ctx context.Context, owner Owner, session NewSession) (SessionCreated, error) {
	return s.Store.CreateSession(ctx, owner, session)
}

// Session returns a session, and the position to view it from: before the reply that is being written, if one is.
func (s *Service) Session(ctx context.Context, owner Owner, sessionID string) (Session, stream.Position, error) {
	session, err := s.Store.Session(ctx, owner, sessionID)
	if err != nil {
		return Session{}, stream.Position{}, err
	}
	if session.LiveReply != "" {
		return session, stream.After(session.LiveMessage), nil
	}
	return session, after(session.Head), nil
}

// Sessions returns a page of sessions.
func (s *Service) Sessions(ctx context.Context, owner Owner, query SessionQuery) (SessionPage, error) {
	return s.Store.Sessions(ctx, owner, query)
}

// DeleteSession removes a session for good. A reply that is being written stops; its viewers are told.
func (s *Service) DeleteSession(ctx context.Context, owner Owner, sessionID string) error {
	session, err := s.Store.DeleteSession(ctx, owner, sessionID)
	if err != nil {
		return err
	}
	s.stopFolding(sessionID)
	s.hub.Remove(sessionID, stream.Deleted)
	if t := s.awaitTurn(sessionID, session.LiveReply); t != nil {
		t.stop(stream.ErrCancelled)
	}
	return nil
}

// removeExpired removes sessions when their time has come, until ctx is done.
func (s *Service) removeExpired(ctx context.Context) {
	for {
		removed, next, err := s.Store.RemoveExpired(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("expired sessions could not be removed; it is tried again", "error", err)
		}
		for _, r := range removed {
			s.stopFolding(r.Session.ID)
			s.hub.Remove(r.Session.ID, stream.Expired)
			s.interrupt(r.Session.ID, r.Session.LiveReply, stream.ErrCancelled)
		}
		wait := sweepEvery
		if next != 0 {
			wait = max(0, min(wait, time.Until(next.Go())))
		}
		if err != nil {
			wait = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// History returns a page of messages. Where it holds the newest one, there is a position too: exact for the text
// that is returned.
func (s *Service) History(ctx context.Context, owner Owner, sessionID string, query MessageQuery) (MessagePage, *stream.Position, error) {
	page, err := s.Store.Messages(ctx, owner, sessionID, query)
	if err != nil {
		return MessagePage{}, nil, err
	}
	newest := query.From == "" && !query.Ascending || query.Ascending && !page.More
	position := after(page.Session.Head)
	for i := range page.Messages {
		m := &page.Messages[i]
		if m.Status != stream.Streaming {
			continue
		}
		if *m, position, err = s.current(ctx, owner, *m); err != nil {
			return MessagePage{}, nil, err
		}
	}
	if !newest {
		return page, nil, nil
	}
	return page, &position, nil
}

// Message returns one message as it is now, and the position after what is returned of it.
func (s *Service) Message(ctx context.Context, owner Owner, sessionID, messageID string) (Message, stream.Position, error) {
	m, err := s.Store.Message(ctx, owner, sessionID, messageID)
	if err != nil {
		return Message{}, stream.Position{}, err
	}
	return s.current(ctx, owner, m)
}

// current brings a streaming reply up to what it is at this moment: the store is a tick behind.
func (s *Service) current(ctx context.Context, owner Owner, m Message) (Message, stream.Position, error) {
	if m.Status != stream.Streaming {
		return m, stream.After(m.ID), nil
	}
	if r := s.hub.Reply(m.SessionID, m.ID); r != nil {
		text, ending := r.Snapshot()
		if ending == nil {
			if len(text) > len(m.Content) { // else it is another node's
				m.Content = string(text)
			}
			return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
		}
	} else if s.Nodes != nil {
		return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
	}
	// It ended since the store was asked, or has only just begun.
	m, err := s.Store.Message(ctx, owner, m.SessionID, m.ID)
	if err != nil {
		return Message{}, stream.Position{}, err
	}
	if m.Status != stream.Streaming {
		return m, stream.After(m.ID), nil
	}
	return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
}

// after is stream.After for an id that may be "": before the first message.
func after(id string) stream.Position {
	if id == "" {
		return stream.Position{}
	}
	return stream.After(id)
}
