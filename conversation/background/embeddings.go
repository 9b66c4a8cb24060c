package background

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
	"parley/stream"
)

const (
	// messageTimeout is the longest wait of a turn for the embedding of its message. People do not notice 200 ms more
	// before the first token.
	messageTimeout = 200 * time.Millisecond
	// jobTimeout bounds the embedding job after a reply. embeddingJobs is the maximum number of these jobs at one time.
	jobTimeout    = 10 * time.Second
	embeddingJobs = 16
	// jobExchanges is the maximum number of exchanges that one job embeds: the exchange of the reply, and the newest
	// exchanges without an embedding.
	jobExchanges = 64
	// Only the first embeddedBytes bytes of each message are embedded. The two messages of an exchange have at most
	// 8,000 bytes together, about as much as embedding models accept.
	embeddedBytes = 4000
)

// EmbeddingOptions are the dependencies of [Embeddings].
type EmbeddingOptions struct {
	Store    conversation.ContextStore
	Embedder stream.Embedder // nil for none; then all methods do nothing
	Log      *slog.Logger
}

// Embeddings embeds exchanges after replies, and new messages before replies, for windows with the semantic policy.
// Methods may be called from any goroutine.
type Embeddings struct {
	EmbeddingOptions
	worker  *Worker[struct{}]
	failing atomic.Bool // whether the last call to the embedder failed
}

// NewEmbeddings returns an Embeddings. It runs no goroutine while it has no job.
func NewEmbeddings(options EmbeddingOptions) *Embeddings {
	return &Embeddings{EmbeddingOptions: options, worker: NewWorker[struct{}](embeddingJobs)}
}

// Drain cancels the running jobs, because jobs after later replies do the same work. It returns when no job is running.
func (e *Embeddings) Drain() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	e.worker.Drain(now)
}

// OfMessage returns the embedding of the new message of f. It returns nil if the embedder fails or takes over 200 ms.
// It does not call the embedder, and returns nil, in two cases: the last call failed, or the window need not choose
// among exchanges that have embeddings.
func (e *Embeddings) OfMessage(ctx context.Context, f *prompt.Fit) window.Vector {
	if e.Embedder == nil || !f.Compares() || e.failing.Load() {
		return nil
	}
	model := e.Embedder.Name()
	if !slices.ContainsFunc(f.Index, func(x conversation.Indexed) bool { return x.Vector.MadeBy(model) }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, messageTimeout)
	defer cancel()
	vectors, err := e.embed(ctx, []string{prefix(f.Text(), embeddedBytes)})
	e.noteResult(err)
	if err != nil {
		return nil
	}
	return vectors[0]
}

// AfterReply starts a job and returns at once. The job embeds an exchange that has ended, and other exchanges of f that
// have no embedding. The last message of exchange must be the reply.
func (e *Embeddings) AfterReply(owner conversation.Owner, f *prompt.Fit, exchange ...*conversation.Message) {
	config := f.Session.Context
	if e.Embedder == nil || config.RetentionPolicy != conversation.Semantic || !config.CompressionEnabled {
		return
	}
	var own []prompt.Message
	for _, m := range exchange {
		own = append(own, prompt.MessageOf(m))
	}
	todo := append([][]prompt.Message{own}, f.Unembedded(e.Embedder.Name(), jobExchanges-1)...)
	sessionID := f.Session.ID
	e.worker.Enqueue(sessionID, func(ctx context.Context) struct{} {
		e.run(ctx, owner, sessionID, todo)
		return struct{}{}
	})
}

// run embeds exchanges and stores their embeddings. If the model refuses the call for all exchanges, run embeds only
// the first exchange.
func (e *Embeddings) run(ctx context.Context, owner conversation.Owner, sessionID string, todo [][]prompt.Message) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	todo = e.withTexts(ctx, owner, sessionID, todo)
	if len(todo) == 0 {
		return
	}
	texts := make([]string, len(todo))
	for i, exchange := range todo {
		texts[i] = textOf(exchange)
	}
	vectors, err := e.embed(ctx, texts)
	if refused, ok := errors.AsType[*stream.ModelError](err); ok && refused.Code != stream.CodeProviderTimeout && len(texts) > 1 {
		vectors, err = e.embed(ctx, texts[:1])
	}
	e.noteResult(err)
	if err != nil {
		return
	}
	made := make([]conversation.ExchangeVector, len(vectors))
	for i, v := range vectors {
		made[i] = conversation.ExchangeVector{Reply: todo[i][len(todo[i])-1].ID, Vector: v}
	}
	if err := e.Store.SetVectors(ctx, owner, sessionID, made); err != nil && ctx.Err() == nil {
		e.Log.Warn("the embeddings of a session's messages could not be stored; a later reply makes them again",
			"session", sessionID, "error", err)
	}
}

// errVectorCount means that an embedder returned the wrong number of vectors.
var errVectorCount = errors.New("the embedding model did not return one vector for each text")

// embed returns the embeddings of texts, in the same order.
func (e *Embeddings) embed(ctx context.Context, texts []string) ([]window.Vector, error) {
	found, err := e.Embedder.Embed(ctx, texts)
	if err == nil && len(found.Vectors) != len(texts) {
		err = errVectorCount
	}
	vectors := make([]window.Vector, len(texts))
	for i := range texts {
		if err == nil {
			vectors[i], err = window.VectorOf(e.Embedder.Name(), found.Vectors[i])
		}
	}
	return vectors, err
}

// noteResult records whether the embedder works. It logs the first of several failures in a row.
func (e *Embeddings) noteResult(err error) {
	switch {
	case err == nil:
		e.failing.Store(false)
	case errors.Is(err, context.Canceled): // the caller cancelled; that says nothing about the embedder
	case !e.failing.Swap(true):
		e.Log.Warn("the embedding model is late or failed; semantic windows compare words until it works again", "error", err)
	}
}

// textOf returns the text that is embedded for an exchange: the first embeddedBytes bytes of each message.
func textOf(exchange []prompt.Message) string {
	parts := make([]string, len(exchange))
	for i, m := range exchange {
		parts[i] = prefix(m.Content, embeddedBytes)
	}
	return strings.Join(parts, "\n")
}

// withTexts reads the missing texts of exchanges in one round trip, and returns the exchanges that have a text. If the
// texts cannot be read, it returns only the first exchange, because the texts of that exchange are known.
func (e *Embeddings) withTexts(ctx context.Context, owner conversation.Owner, sessionID string, todo [][]prompt.Message) [][]prompt.Message {
	f := &prompt.Fit{Context: conversation.Context{Session: conversation.Session{ID: sessionID}}}
	var places []int
	for _, exchange := range todo {
		for _, m := range exchange {
			places = append(places, len(f.Messages))
			f.Messages = append(f.Messages, m)
		}
	}
	if ReadTexts(ctx, e.Store, owner, f, places) != nil {
		return todo[:1]
	}
	var all [][]prompt.Message
	rest := f.Messages
	for _, exchange := range todo {
		exchange, rest = rest[:len(exchange)], rest[len(exchange):]
		if strings.TrimSpace(textOf(exchange)) != "" {
			all = append(all, exchange)
		}
	}
	return all
}
