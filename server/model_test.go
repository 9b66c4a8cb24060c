package server_test

import (
	"context"
	"sync/atomic"
	"testing"

	"parley/stream"
)

// modelFunc is a function that implements stream.Model.
type modelFunc func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error)

func (modelFunc) Name() string { return "scripted" }

func (f modelFunc) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	return f(ctx, request, write)
}

// echo is a model that replies at once with "You said: " and the message.
var echo = modelFunc(func(_ context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	write([]byte("You said: " + request.Messages[len(request.Messages)-1].Content))
	return stream.Result{FinishReason: "stop"}, nil
})

// directed is a model that the test controls, call by call.
type directed struct {
	calls chan *call
	asked atomic.Int64 // number of calls
	// linger, if not nil, keeps a cancelled call open until the test closes linger.
	linger chan struct{}
}

func newDirected() *directed { return &directed{calls: make(chan *call, 64)} }

// call is a call of a directed model.
type call struct {
	request stream.Request
	ctx     context.Context
	text    chan string
	ends    chan ending
	closed  chan struct{} // closed when the call has returned
	said    bool          // owned by the test
}

type ending struct {
	result stream.Result
	err    error
}

func (*directed) Name() string { return "directed" }

func (m *directed) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	c := &call{request: request, ctx: ctx, text: make(chan string), ends: make(chan ending), closed: make(chan struct{})}
	defer close(c.closed)
	m.asked.Add(1)
	m.calls <- c
	for {
		select {
		case text := <-c.text:
			write([]byte(text))
		case e := <-c.ends:
			return e.result, e.err
		case <-ctx.Done():
			if m.linger != nil {
				<-m.linger
			}
			return stream.Result{}, ctx.Err()
		}
	}
}

// next returns the next call.
func (m *directed) next(t testing.TB) *call {
	t.Helper()
	return within(t, "a call of the model", m.calls)
}

// say makes the model send text. It returns when the reply contains the text.
func (c *call) say(text string) {
	c.said = true
	c.text <- text
	c.text <- "" // received only after the text was written
}

// done is the text of a reply whose end came before any say. A reply without text would fail.
const done = "Done."

// end makes the model finish normally. If the reply has no text, the model first sends done.
func (c *call) end() {
	if !c.said {
		c.say(done)
	}
	c.finish(stream.Result{FinishReason: "stop"}, nil)
}

func (c *call) finish(result stream.Result, err error) { c.ends <- ending{result, err} }
