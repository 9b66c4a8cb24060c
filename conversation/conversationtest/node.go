// Package conversationtest runs whole conversations for the tests of the packages under conversation: a [Node] is a service on an
// embedded store, with a model that the test directs and no HTTP. Nodes of a [Cluster] share one store, as nodes share a Redis.
// Everything also runs in a synctest bubble, where waits cost no time.
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
)

// Owner owns everything that the tests make.
var Owner = conversation.Owner{Account: "default", Mode: conversation.Live}

// Timeout is how long a test waits for what must come: only a hang reaches it.
const Timeout = time.Minute

// Silence is how long a model may be silent here.
const Silence = 20 * time.Second

// Count is the tokenizer of the tests: a token is four bytes.
func Count(text string) int { return (len(text) + 3) / 4 }

// Node is a service, and how tests drive it.
type Node struct {
	*service.Service
	T testing.TB

	drained sync.Once
}

// Option changes what a node is made of.
type Option = func(*service.Options)

// Start runs a service on a store of its own until the test ends.
func Start(t testing.TB, model stream.Model, options ...Option) *Node {
	t.Helper()
	return startOn(t, openStore(t), nil, model, options...)
}

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
		Store: store, Nodes: nodes, Model: model, Count: Count, Log: slog.New(slog.DiscardHandler),
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

// Drain drains the service, once.
func (n *Node) Drain(ctx context.Context) { n.drained.Do(func() { n.Service.Drain(ctx) }) }

// NewSession makes a session with the default window, or with this one.
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

// Message returns a user's message that is queued if the session is busy.
func Message(session, text string) conversation.NewMessage {
	return conversation.NewMessage{SessionID: session, Role: conversation.User, Content: text, OnBusy: conversation.Enqueue}
}

// Reply is what a send was answered with.
type Reply struct {
	conversation.Message
	Replayed bool
	Err      error
}

// SendAndWait sends a message and returns the reply when it has ended.
func (n *Node) SendAndWait(ctx context.Context, m conversation.NewMessage) Reply {
	sent, err := n.Send(ctx, Owner, m)
	if err != nil {
		return Reply{Err: err}
	}
	reply, err := sent.Wait(ctx)
	return Reply{reply, sent.Replayed, err}
}

// Later is SendAndWait in the background.
func (n *Node) Later(m conversation.NewMessage) <-chan Reply {
	replies := make(chan Reply, 1)
	go func() { replies <- n.SendAndWait(context.Background(), m) }()
	return replies
}

// Ask sends a message and returns the reply, which must come.
func (n *Node) Ask(session, text string) conversation.Message {
	n.T.Helper()
	r := n.SendAndWait(context.Background(), Message(session, text))
	if r.Err != nil {
		n.T.Fatalf("%.40q: %v", text, r.Err)
	}
	return r.Message
}

// Begun sends a message and returns when its turn has begun.
func (n *Node) Begun(session, text string) *turn.Sent {
	n.T.Helper()
	sent, err := n.Send(context.Background(), Owner, Message(session, text))
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

// Viewer is a viewer whose events a test waits for.
type Viewer struct {
	*stream.Viewer
	Position  stream.Position // where it began
	Recovered bool

	t    testing.TB
	wake chan struct{}
}

// Watch views a session until the test ends: after a position, or from now on if that is nil.
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

// Poll returns the next event if there is one now.
func (v *Viewer) Poll() (stream.Event, bool) {
	v.t.Helper()
	event, ok, err := v.Next(context.Background())
	if err != nil {
		v.t.Fatal(err)
	}
	return event, ok
}

// Event returns the next event.
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

// Until returns the next event of that kind, and the text of the deltas before it.
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

// Decode returns a message that a viewer was shown.
func Decode(t testing.TB, shown []byte) (m conversation.Message) {
	t.Helper()
	if err := json.Unmarshal(shown, &m); err != nil {
		t.Fatalf("%s: %v", shown, err)
	}
	return m
}

// Within returns what comes out of a channel.
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

// Fails reports an error that is not want.
func Fails(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
