package turn

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"parley/conversation"
	"parley/conversation/background"
	"parley/conversation/follow"
	"parley/stream"
	"parley/stream/models"
)

// journalTick is the interval at which new text of live replies goes to the store. A crash loses the text of one tick
// and of the time of its write. Viewers on other nodes get text one tick late. A shorter tick would cost more writes,
// and viewers would not notice a difference. A tick of 200 ms would save 2 % of the CPU time of a token (Redis saves a
// tenth of its own), and a crash would lose four times as much text.
const journalTick = 50 * time.Millisecond

// Store is the part of conversation.Store that this package uses.
type Store interface {
	conversation.TurnStore
	conversation.ContextStore
	Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error)
}

// Options are the dependencies of [Turns].
type Options struct {
	Store      Store
	Nodes      conversation.Nodes // nil if no other node shares the store
	Models     *models.Set
	Timeouts   stream.Timeouts
	MaxBytes   int                   // the argument maxBytes of window.ReplyBytes
	Count      func(text string) int // returns the number of tokens of a text
	Hub        *stream.Hub
	Follower   *follow.Follower
	Summaries  *background.Summaries
	Embeddings *background.Embeddings
	Log        *slog.Logger
	// MaxInFlight is the maximum number of sends in flight on this node; 0 means no limit. See [Turns.TakeSlot].
	MaxInFlight int
}

// Turns runs the turns of this node. Methods may be called from any goroutine.
type Turns struct {
	options Options
	journal *stream.Journal[conversation.TurnKey]
	live    *registry
	slots   *slots
	gates   *gates
	endings largeEndings
	// reasoning has the name of each model that has reasoned before a reply of this node, as its provider reports. Reasoning within
	// the text does not count: a user can ask any model for it, and the sessions of all tenants would then get larger requests.
	reasoning sync.Map
	draining  chan struct{}      // closed when Drain begins
	storing   context.Context    // the context of calls of EndTurn
	abandon   context.CancelFunc // ends storing, so that turns no longer wait for the store

	mu   sync.Mutex     // held by enter and Drain, so that enter adds no work after Drain has begun
	work sync.WaitGroup // live turns, and sends before their turns begin
}

// New returns a Turns. It runs no goroutine while it has no turn.
func New(options Options) *Turns {
	t := &Turns{
		options: options, live: newRegistry(), slots: newSlots(options.MaxInFlight), draining: make(chan struct{}),
		gates: newGates(options.Nodes != nil), endings: make(largeEndings, endingsAtOnce),
		journal: stream.NewJournal(options.Store, journalTick, options.Log),
	}
	t.storing, t.abandon = context.WithCancel(context.Background())
	return t
}

// enter adds 1 to work and returns true, unless a drain has begun.
func (t *Turns) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.draining:
		return false
	default:
	}
	t.work.Add(1)
	return true
}

// Drain refuses new sends, ends queued sends with ErrDraining, and lets live turns end. When ctx ends, Drain interrupts
// the live turns. It returns when no turn is live. It must be called only once.
//
// After ctx has ended, the store has endTimeout to store the endings. Then each turn gives up as soon as its current
// call of the store returns.
func (t *Turns) Drain(ctx context.Context) {
	t.mu.Lock()
	close(t.draining)
	t.mu.Unlock()
	defer t.abandon()
	stop := context.AfterFunc(ctx, func() {
		t.live.stopAll(stream.ErrInterrupted)
		time.AfterFunc(t.options.endTimeout(), t.abandon)
	})
	defer stop()
	t.work.Wait()
	t.journal.Wait()
}

// Draining returns a channel that is closed when Drain begins.
func (t *Turns) Draining() <-chan struct{} { return t.draining }

// LiveReplies returns the number of live replies that this node writes.
func (t *Turns) LiveReplies() int { return t.live.count() }

// IsLive reports whether this node writes a reply of the session.
func (t *Turns) IsLive(sessionID string) bool { return t.live.isLive(sessionID) }

// Beginning reports whether a turn of the session may be beginning on this node: the store may have begun the turn
// already, before this node has the response.
func (t *Turns) Beginning(sessionID string) bool { return t.live.isBeginning(sessionID) }
