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
)

// journalTick is how often new text of live replies goes to the store: the most that a crash loses, and the delay of viewers on
// other nodes. A shorter tick costs more writes than viewers notice.
const journalTick = 50 * time.Millisecond

// Store is what this package needs of a store.
type Store interface {
	conversation.TurnStore
	conversation.ContextStore
	Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error)
}

// Options are what [Turns] need.
type Options struct {
	Store      Store
	Nodes      conversation.Nodes // nil if no other node shares the store
	Model      stream.Model
	Timeouts   stream.Timeouts
	Count      func(text string) int // the tokens of a text
	Hub        *stream.Hub
	Follower   *follow.Follower
	Summaries  *background.Summaries
	Embeddings *background.Embeddings
	Log        *slog.Logger
}

// Turns runs the turns of this node. Methods may be called from any goroutine.
type Turns struct {
	options  Options
	journal  *stream.Journal[conversation.TurnKey]
	live     *registry
	draining chan struct{} // closed when Drain begins

	mu   sync.Mutex     // orders enter and Drain
	work sync.WaitGroup // live turns, and sends that have none yet
}

// New returns a Turns. It has no goroutine while there are no turns.
func New(options Options) *Turns {
	return &Turns{
		options: options, live: newRegistry(), draining: make(chan struct{}),
		journal: stream.NewJournal(options.Store, journalTick, options.Log),
	}
}

// enter counts work, unless a drain has begun.
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

// Drain refuses new turns, gives up queued ones and lets the live ones end. When ctx ends, it interrupts those. It returns when
// no turn is live. It is called once.
func (t *Turns) Drain(ctx context.Context) {
	t.mu.Lock()
	close(t.draining)
	t.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { t.live.stopAll(stream.ErrInterrupted) })
	defer stop()
	t.work.Wait()
	t.journal.Wait()
}

// Draining is closed when Drain begins.
func (t *Turns) Draining() <-chan struct{} { return t.draining }

// LiveReplies returns how many replies this node is writing.
func (t *Turns) LiveReplies() int { return t.live.count() }

// IsLive reports whether this node is writing a reply of the session.
func (t *Turns) IsLive(sessionID string) bool { return t.live.isLive(sessionID) }

// Beginning reports whether a turn of the session may be beginning on this node: the store has it, and this node does not know
// that yet.
func (t *Turns) Beginning(sessionID string) bool { return t.live.isBeginning(sessionID) }
