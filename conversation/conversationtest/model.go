package conversationtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"parley/stream"
)

// ModelFunc is a model that consists of one function.
type ModelFunc func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error)

// Name implements stream.Model.
func (ModelFunc) Name() string { return "scripted" }

// Generate implements stream.Model.
func (f ModelFunc) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	return f(ctx, request, write)
}

// Echo replies at once, with "You said: " and the text of the message.
var Echo = ModelFunc(func(_ context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	write([]byte("You said: " + Last(request)))
	return stream.Result{FinishReason: "stop"}, nil
})

// Last returns the content of a request's last message.
func Last(request stream.Request) string { return request.Messages[len(request.Messages)-1].Content }

// OfTokens returns a text of n tokens (see Count) that begins with words.
func OfTokens(n int, words string) string { return words + strings.Repeat(" ", 4*n-len(words)-1) + "." }

// Directed is a model that the test controls: it writes the text that the test passes to Call.Write, and ends on
// Call.End or Call.Finish.
type Directed struct {
	Calls chan *Call
	// If Linger is not nil, a cancelled call stays open until the test closes Linger.
	Linger chan struct{}
}

// NewDirected returns a directed model.
func NewDirected() *Directed { return &Directed{Calls: make(chan *Call, 64)} }

// Call is one request to a directed model.
type Call struct {
	Request stream.Request
	Ctx     context.Context
	Closed  chan struct{} // closed when Generate returns

	text  chan string
	ends  chan callEnd
	wrote atomic.Bool // whether the reply has text; a test may write from several goroutines
}

type callEnd struct {
	result stream.Result
	err    error
}

// Name implements stream.Model.
func (*Directed) Name() string { return "directed" }

// Generate implements stream.Model.
func (m *Directed) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	c := &Call{Request: request, Ctx: ctx, text: make(chan string), ends: make(chan callEnd), Closed: make(chan struct{})}
	defer close(c.Closed)
	m.Calls <- c
	for {
		select {
		case text := <-c.text:
			write([]byte(text))
		case e := <-c.ends:
			return e.result, e.err
		case <-ctx.Done():
			if m.Linger != nil {
				<-m.Linger
			}
			return stream.Result{}, ctx.Err()
		}
	}
}

// Next waits for the next call and returns it.
func (m *Directed) Next(t testing.TB) *Call {
	t.Helper()
	return Within(t, "a call of the model", m.Calls)
}

// Write makes the model write text. It returns when the reply has the text.
func (c *Call) Write(text string) {
	if text != "" {
		c.wrote.Store(true)
	}
	c.text <- text
	c.text <- "" // Generate receives this only after it has written text
}

// Done is the text of a reply whose Call.End came before any Write. A reply without text would fail.
const Done = "Done."

// End makes the model end the reply with the finish reason "stop". If the reply has no text, the model first writes Done.
func (c *Call) End() {
	if !c.wrote.Load() {
		c.Write(Done)
	}
	c.Finish(stream.Result{FinishReason: "stop"}, nil)
}

// Finish makes Generate return result and err.
func (c *Call) Finish(result stream.Result, err error) { c.ends <- callEnd{result, err} }

// Summarising is a model. Each reply has 46 tokens. A test may choose the texts of the summaries.
type Summarising struct {
	mu        sync.Mutex
	calls     []stream.Request                                      // guarded by mu
	summaries int                                                   // guarded by mu
	summary   func(ctx context.Context, number int) (string, error) // guarded by mu
}

// Name implements stream.Model.
func (*Summarising) Name() string { return "summarising" }

// Generate implements stream.Model.
func (m *Summarising) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	if ctx.Err() != nil {
		return stream.Result{}, ctx.Err()
	}
	m.mu.Lock()
	m.calls = append(m.calls, request)
	if request.Summary {
		m.summaries++
	}
	n, summary := m.summaries, m.summary
	m.mu.Unlock()
	text, err := OfTokens(46, ""), error(nil)
	if request.Summary {
		text = fmt.Sprintf("summary %d", n)
		if summary != nil {
			text, err = summary(ctx, n)
		}
	}
	if text != "" {
		write([]byte(text))
	}
	if err != nil {
		return stream.Result{}, err
	}
	return stream.Result{FinishReason: "stop"}, nil
}

// Summarise makes the model get the text of each summary from a function. nil restores the default texts: "summary 1",
// "summary 2" and so on.
func (m *Summarising) Summarise(with func(ctx context.Context, number int) (string, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.summary = with
}

// Called returns the calls of Generate since Called was used last: first the calls for replies, then the calls for
// summaries.
func (m *Summarising) Called() (replies, summaries []stream.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if c.Summary {
			summaries = append(summaries, c)
		} else {
			replies = append(replies, c)
		}
	}
	m.calls = nil
	return replies, summaries
}
