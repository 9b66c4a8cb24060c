package conversationtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"parley/conversation"
	"parley/stream"
)

// Cluster is a store that several nodes share. It implements conversation.Nodes in memory, on top of an embedded store.
// Tests can make its operations fail.
type Cluster struct {
	t     testing.TB
	store conversation.Store

	mu      sync.Mutex
	nodes   []*member                         // guarded by mu
	stops   map[string]conversation.Stop      // guarded by mu; by the reply's id
	lost    map[string]conversation.TurnStart // guarded by mu; results of BeginTurn that the caller did not get, by waiter
	orphans []conversation.TurnKey            // guarded by mu
	fails   map[string]error                  // guarded by mu; by operation
	silent  bool                              // guarded by mu; whether wake-ups are dropped
	turns   map[string]conversation.TurnKey   // guarded by mu; the newest turn, by session
	Queued  chan string                       // the content of each send that was queued

	CallTimeout time.Duration // the result of Nodes.Timeout; set it before Start
}

// NewCluster returns a cluster without nodes.
func NewCluster(t testing.TB) *Cluster {
	return &Cluster{
		t: t, store: openStore(t), stops: make(map[string]conversation.Stop), lost: make(map[string]conversation.TurnStart),
		fails: make(map[string]error), turns: make(map[string]conversation.TurnKey), Queued: make(chan string, 1000),
	}
}

// Start adds a node to the cluster and runs it until the test ends.
func (c *Cluster) Start(model stream.Model, options ...Option) *Node {
	c.t.Helper()
	m := &member{Store: c.store, cluster: c, follows: make(map[string]bool)}
	c.mu.Lock()
	c.nodes = append(c.nodes, m)
	c.mu.Unlock()
	return startOn(c.t, m, m, model, options...)
}

// Fail makes an operation return err from now on; nil makes it work again. The operations are "Join", "Follow", "Poll",
// "ResumeTurn", "Message", "Messages", "EndOrphans" and "BeginTurn". A failing BeginTurn or Join still takes effect;
// only its response is lost. The other operations fail without an effect. With "Poll ID", only the session with that id
// cannot be polled.
func (c *Cluster) Fail(operation string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails[operation] = err
}

func (c *Cluster) failure(operation string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fails[operation]
}

// LoseWakeUps drops all wake-ups for single sessions from now on. Reconnect still notifies all nodes.
func (c *Cluster) LoseWakeUps() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

// Orphan makes the next EndOrphans treat the newest turn of a session as an orphan.
func (c *Cluster) Orphan(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphans = append(c.orphans, c.turns[session])
}

// Reconnect notifies all nodes that any session may have changed, as after a lost connection to the store.
func (c *Cluster) Reconnect() { c.notifyAll("", func(*member) bool { return true }) }

func (c *Cluster) notify(sessionID string) {
	c.notifyAll(sessionID, func(m *member) bool { return !c.silent && m.follows[sessionID] })
}

func (c *Cluster) notifyAll(sessionID string, to func(*member) bool) {
	c.mu.Lock()
	var notify []func(string)
	for _, m := range c.nodes {
		if to(m) && m.notify != nil {
			notify = append(notify, m.notify)
		}
	}
	c.mu.Unlock()
	for _, f := range notify {
		f(sessionID)
	}
}

func (c *Cluster) stop(sessionID, replyID string, why conversation.Stop) {
	c.mu.Lock()
	c.stops[replyID] = why
	c.mu.Unlock()
	c.notify(sessionID)
}

// member is the cluster's store as one node uses it.
type member struct {
	conversation.Store
	cluster *Cluster
	notify  func(sessionID string) // guarded by cluster.mu
	follows map[string]bool        // guarded by cluster.mu
}

func (m *member) follow(sessionID string) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.follows[sessionID] = true
}

// Join implements conversation.Nodes.
func (m *member) Join(_ context.Context, notify func(string)) error {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	m.notify = notify
	return m.cluster.fails["Join"]
}

// Follow implements conversation.Nodes.
func (m *member) Follow(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	if err := m.cluster.failure("Follow"); err != nil {
		return conversation.Session{}, err
	}
	m.follow(sessionID)
	return m.Session(ctx, owner, sessionID)
}

// Poll implements conversation.Nodes.
func (m *member) Poll(ctx context.Context, followed []conversation.Followed) ([]conversation.Update, error) {
	if err := m.cluster.failure("Poll"); err != nil {
		return nil, err
	}
	updates := make([]conversation.Update, len(followed))
	for i, f := range followed {
		if err := m.cluster.failure("Poll " + f.SessionID); err != nil {
			updates[i].Err = err
			continue
		}
		c, err := m.Store.Context(ctx, f.Owner, f.SessionID, 0)
		if errors.Is(err, conversation.ErrSessionNotFound) {
			updates[i] = conversation.Update{Gone: true, At: conversation.TimeOf(time.Now())}
			continue
		} else if err != nil {
			return nil, err
		}
		u := conversation.Update{Session: c.Session, Summary: c.Summary}
		u.Summary.Text = ""
		if f.Reply != "" && f.Reply == c.Session.LiveReply {
			reply, err := m.Store.Message(ctx, f.Owner, f.SessionID, f.Reply)
			if err == nil && len(reply.Content) > f.Offset {
				u.Text = []byte(reply.Content[f.Offset:])
			}
		}
		m.cluster.mu.Lock()
		u.Stop = m.cluster.stops[c.Session.LiveReply]
		m.cluster.mu.Unlock()
		m.follow(f.SessionID)
		updates[i] = u
	}
	return updates, nil
}

// StopReply implements conversation.Nodes.
func (m *member) StopReply(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	found, err := m.Store.Message(ctx, owner, sessionID, messageID)
	if err == nil && found.Status == stream.Streaming {
		m.cluster.stop(sessionID, messageID, conversation.StopCancelled)
	}
	return found, err
}

// Timeout implements conversation.Nodes.
func (m *member) Timeout() time.Duration { return m.cluster.CallTimeout }

// ResumeTurn implements conversation.Nodes.
func (m *member) ResumeTurn(_ context.Context, _ conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	if err := m.cluster.failure("ResumeTurn"); err != nil {
		return conversation.TurnStart{}, err
	}
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	if begun, ok := m.cluster.lost[turn.Waiter]; ok && begun.Queued == nil && begun.Replayed == nil {
		return begun, nil
	}
	return conversation.TurnStart{}, conversation.ErrMessageNotFound
}

// The operations below call the embedded store. After a change, they notify the nodes that follow the session. Some
// fail if the test has called Cluster.Fail.

func (m *member) Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	if err := m.cluster.failure("Message"); err != nil {
		return conversation.Message{}, err
	}
	return m.Store.Message(ctx, owner, sessionID, messageID)
}

func (m *member) Messages(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	if err := m.cluster.failure("Messages"); err != nil {
		return conversation.MessagePage{}, err
	}
	return m.Store.Messages(ctx, owner, sessionID, query)
}

func (m *member) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	begun, err := m.Store.BeginTurn(ctx, owner, turn)
	if err != nil {
		return begun, err
	}
	switch {
	case begun.Queued != nil:
		if turn.OnBusy == conversation.Interrupt {
			m.cluster.stop(turn.SessionID, begun.Queued.Live, conversation.StopCancelled)
		}
		m.cluster.Queued <- turn.Content
	case begun.Replayed == nil:
		m.cluster.mu.Lock()
		m.cluster.turns[turn.SessionID] = begun.Key
		m.cluster.mu.Unlock()
		m.follow(turn.SessionID)
		m.cluster.notify(turn.SessionID)
	}
	if err := m.cluster.failure("BeginTurn"); err != nil {
		m.cluster.mu.Lock()
		m.cluster.lost[turn.Waiter] = begun
		m.cluster.mu.Unlock()
		return conversation.TurnStart{}, err
	}
	return begun, nil
}

func (m *member) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	defer m.cluster.notify(key.SessionID)
	return m.Store.EndTurn(ctx, key, reply, timing)
}

func (m *member) ClearMessages(ctx context.Context, owner conversation.Owner, sessionID, waiter string) (conversation.Cleared, error) {
	cleared, err := m.Store.ClearMessages(ctx, owner, sessionID, waiter)
	if cleared.Queued != nil {
		m.cluster.stop(sessionID, cleared.Queued.Live, conversation.StopCleared)
	}
	m.cluster.notify(sessionID)
	return cleared, err
}

func (m *member) DeleteSession(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	defer m.cluster.notify(sessionID)
	return m.Store.DeleteSession(ctx, owner, sessionID)
}

func (m *member) SaveSummary(ctx context.Context, owner conversation.Owner, sessionID, after string, summary conversation.Summary, usage conversation.Usage) error {
	defer m.cluster.notify(sessionID)
	return m.Store.SaveSummary(ctx, owner, sessionID, after, summary, usage)
}

func (m *member) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	err := m.Store.Journal(ctx, batch)
	for _, segment := range batch {
		m.cluster.notify(segment.Key.SessionID)
	}
	return err
}

func (m *member) EndOrphans(ctx context.Context, count func(string) int) (int, error) {
	if err := m.cluster.failure("EndOrphans"); err != nil {
		return 0, err
	}
	m.cluster.mu.Lock()
	orphans := m.cluster.orphans
	m.cluster.orphans = nil
	m.cluster.mu.Unlock()
	for _, key := range orphans {
		reply, err := m.Store.Message(ctx, key.Owner, key.SessionID, key.ReplyID)
		if err != nil {
			return 0, err
		}
		reply.Status, reply.Tokens, reply.Usage = stream.Interrupted, count(reply.Content), &conversation.Usage{Estimated: true}
		if _, err := m.EndTurn(ctx, key, reply, conversation.Timing{}); err != nil {
			return 0, err
		}
	}
	return len(orphans), nil
}
