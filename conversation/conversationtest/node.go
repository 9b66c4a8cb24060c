// Package conversationtest runs whole conversations for the tests of the packages under conversation: a [Node] is a
// service on an embedded store, with a model that the test directs and no HTTP. Nodes of a [Cluster] share one store,
// as nodes in production share Redis. Nodes also run in a synctest bubble, where sleeping takes no real time.
package conversationtest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/service"
	"parley/conversation/turn"
	"parley/store/embedded"
	"parley/stream"
	"parley/stream/models"
)

// Owner owns all sessions that the tests create.
var Owner = conversation.Owner{Account: "default", Mode: conversation.Live}

// Timeout is the longest time that a test waits for an event. Only a test that hangs waits this long.
const Timeout = time.Minute

// Silence is the model timeout of the tests, for the first byte and for a stall.
const Silence = 20 * time.Second

// Count is the token counter of the tests: one token for each four bytes, rounded up.
func Count(text string) int { return (len(text) + 3) / 4 }

// Node is a service with helpers for tests.
type Node struct {
	*service.Service
	T testing.TB

	drained sync.Once
}

// Option changes the options of a node's service.
type Option = func(*service.Options)

// Start runs a node on its own store until the test ends.
func Start(t testing.TB, model stream.Model, options ...Option) *Node {
	t.Helper()
	return startOn(t, BegunFirst{openStore(t)}, nil, model, options...)
}

// BegunFirst is a store that does not report a turn before it has begun (see conversation.NewTurn.Prepared). So a test that
// sees the call of the model can read the turn in the store.
type BegunFirst struct{ conversation.Store }

// BeginTurn implements conversation.Store.
func (s BegunFirst) BeginTurn(ctx context.Context, owner conversation.Owner, m conversation.NewTurn) (conversation.TurnStart, error) {
	m.Prepared = nil
	return s.Store.BeginTurn(ctx, owner, m)
}

// Early is an option: the model is called while the store writes the beginning of a turn, as in production.
func Early(o *service.Options) { o.Store = o.Store.(BegunFirst).Store }

func openStore(t testing.TB) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(filepath.Join(t.TempDir(), "parley.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func startOn(t testing.TB, store conversation.Store, nodes conversation.Nodes, model stream.Model, options ...Option) *Node {
	t.Helper()
	o := service.Options{
		Store: store, Nodes: nodes, Models: models.Of(models.New(model.Name(), model, 0)), Count: Count, Log: slog.New(slog.DiscardHandler),
		Timeouts: stream.Timeouts{FirstByte: Silence, Stall: Silence},
	}
	for _, option := range options {
		option(&o)
	}
	n := &Node{Service: service.New(o), T: t}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		n.Drain(now)
	})
	return n
}

// Drain drains the service. Only the first call has an effect.
func (n *Node) Drain(ctx context.Context) { n.drained.Do(func() { n.Service.Drain(ctx) }) }

// NewSession creates a session and returns its id. Without config, the session has the default configuration.
func (n *Node) NewSession(config ...conversation.ContextConfig) string {
	n.T.Helper()
	asked := conversation.NewSession{UserID: "user_0123456789abcdef", Context: conversation.DefaultContextConfig}
	if len(config) > 0 {
		asked.Context = config[0]
	}
	made, err := n.Store.CreateSession(context.Background(), Owner, asked)
	if err != nil {
		n.T.Fatal(err)
	}
	return made.Session.ID
}

// Message returns a user's message that waits in the queue if the session is busy.
func Message(session, text string) conversation.NewMessage {
	return conversation.NewMessage{SessionID: session, Role: conversation.User, Content: text, OnBusy: conversation.Enqueue}
}

// Reply is the result of a send: a reply that has ended, or an error.
type Reply struct {
	conversation.Message
	Replayed bool
	Err      error
}

// SendAndWait sends a message and waits until the reply has ended.
func (n *Node) SendAndWait(ctx context.Context, m conversation.NewMessage) Reply {
	sent, err := n.Send(ctx, m)
	if err != nil {
		return Reply{Err: err}
	}
	reply, err := sent.Wait(ctx)
	return Reply{reply, sent.Replayed, err}
}

// Send sends a message in a slot of its own. It returns when the turn has begun, or when the send is refused.
func (n *Node) Send(ctx context.Context, m conversation.NewMessage) (*turn.Sent, error) {
	slot, err := n.TakeSlot(Owner, m.SessionID, nil)
	if err != nil {
		return nil, err
	}
	defer slot.Release()
	return n.Service.Send(ctx, slot, m)
}

// Begin is like Send, but does not start the turn.
func (n *Node) Begin(ctx context.Context, m conversation.NewMessage) <-chan turn.Result {
	n.T.Helper()
	slot, err := n.TakeSlot(Owner, m.SessionID, nil)
	if err != nil {
		n.T.Fatal(err)
	}
	defer slot.Release()
	return n.Service.Begin(ctx, slot, m)
}

// Later runs SendAndWait in the background. The channel gets one Reply.
func (n *Node) Later(m conversation.NewMessage) <-chan Reply {
	replies := make(chan Reply, 1)
	go func() { replies <- n.SendAndWait(context.Background(), m) }()
	return replies
}

// Ask sends a message and returns the ended reply. An error ends the test.
func (n *Node) Ask(session, text string) conversation.Message {
	n.T.Helper()
	r := n.SendAndWait(context.Background(), Message(session, text))
	if r.Err != nil {
		n.T.Fatalf("%.40q: %v", text, r.Err)
	}
	return r.Message
}

// Begun sends a message and returns as soon as its turn has begun.
func (n *Node) Begun(session, text string) *turn.Sent {
	n.T.Helper()
	sent, err := n.Send(context.Background(), Message(session, text))
	if err != nil {
		n.T.Fatal(err)
	}
	return sent
}

// All returns the messages of a session, oldest first.
func (n *Node) All(session string) []conversation.Message {
	n.T.Helper()
	page, _, err := n.History(context.Background(), Owner, session, conversation.MessageQuery{Ascending: true, Limit: 1000})
	if err != nil {
		n.T.Fatal(err)
	}
	return page.Messages
}

// Get returns a session.
func (n *Node) Get(session string) conversation.Session {
	n.T.Helper()
	found, _, err := n.Session(context.Background(), Owner, session)
	if err != nil {
		n.T.Fatal(err)
	}
	return found
}

// Viewer is a viewer with methods that wait for its events.
type Viewer struct {
	*stream.Viewer
	Position  stream.Position // the position at which the view began
	Recovered bool

	t    testing.TB
	wake chan struct{}
}

// Watch views a session until the test ends: from a position, or from now on if from is nil.
func (n *Node) Watch(session string, from *stream.Position) *Viewer {
	n.T.Helper()
	v := &Viewer{t: n.T, wake: make(chan struct{}, 1)}
	var err error
	v.Viewer, v.Position, v.Recovered, err = n.View(context.Background(), Owner, session, from, func() {
		select {
		case v.wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(v.Viewer.Close)
	return v
}

// Poll returns the next event; false if there is none now.
func (v *Viewer) Poll() (stream.Event, bool) {
	v.t.Helper()
	event, ok, err := v.Next(context.Background())
	if err != nil {
		v.t.Fatal(err)
	}
	return event, ok
}

// Event waits for the next event.
func (v *Viewer) Event() stream.Event {
	v.t.Helper()
	for {
		event, ok := v.Poll()
		if ok {
			return event
		}
		Within(v.t, "an event", v.wake)
	}
}

// Until waits for the next event of a kind. It returns the event and the text of all deltas before it.
func (v *Viewer) Until(kind stream.EventKind) (event stream.Event, text string) {
	v.t.Helper()
	for {
		event := v.Event()
		if event.Kind == kind {
			return event, text
		}
		text += string(event.Delta)
	}
}

// Decode decodes the JSON of a message that viewers see.
func Decode(t testing.TB, shown []byte) (m conversation.Message) {
	t.Helper()
	if err := json.Unmarshal(shown, &m); err != nil {
		t.Fatalf("%s: %v", shown, err)
	}
	return m
}

// Within returns the next value of a channel. It ends the test if none comes within Timeout.
func Within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	late := time.NewTimer(Timeout)
	defer late.Stop()
	select {
	case v := <-from:
		return v
	case <-late.C:
		t.Fatalf("timeout: %s did not come", what)
		panic("not reached")
	}
}

// Fails marks the test as failed unless err is want.
func Fails(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
