package conversation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"parley/conversation/window"
	"parley/stream"
)

const (
	// meaningWait is how long a turn waits to learn what its message means (design section 5). Then it compares words alone.
	meaningWait = 200 * time.Millisecond
	// embedCall is how long what is embedded behind a reply may take, and embedsAtOnce how many replies have that done at once. What
	// is not done then is caught up with behind a later reply.
	embedCall    = 10 * time.Second
	embedsAtOnce = 16
	// embedBatch is how many exchanges are embedded behind a reply: its own, and the newest of those that have no vector.
	embedBatch = 64
	// embedBytes is how much of a message, and of its answer, a vector is of. Two of these are what embedding models take.
	embedBytes = 4000
)

// meaning returns what the new message means, nil if that is not known in time, or nothing would compare with it: it is asked for
// only where the window has to choose among exchanges that have vectors. An embedder that has failed keeps no further turn
// waiting, until it embeds what was said behind a reply.
func (s *Service) meaning(ctx context.Context, f *fitting) window.Vector {
	if s.Embedder == nil || !f.compares() || s.embedFailing.Load() {
		return nil
	}
	model := s.Embedder.Name()
	if !slices.ContainsFunc(f.Index, func(x Indexed) bool { return x.Vector.MadeBy(model) }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, meaningWait)
	defer cancel()
	vectors, err := s.embed(ctx, []string{f.message.Content})
	s.embedded(err)
	if err != nil {
		return nil
	}
	return vectors[0]
}

// errNoVectors says that an embedder broke its word.
var errNoVectors = errors.New("the embedder gave no vector for each text")

// embed returns the vectors of texts.
func (s *Service) embed(ctx context.Context, texts []string) ([]window.Vector, error) {
	found, err := s.Embedder.Embed(ctx, texts)
	if err == nil && len(found.Vectors) != len(texts) {
		err = errNoVectors
	}
	vectors := make([]window.Vector, len(texts))
	for i := range texts {
		if err == nil {
			vectors[i], err = window.VectorOf(s.Embedder.Name(), found.Vectors[i])
		}
	}
	return vectors, err
}

// embedded notes how the embedder has done. The log is told of the first failure of a row.
func (s *Service) embedded(err error) {
	switch {
	case err == nil:
		s.embedFailing.Store(false)
	case errors.Is(err, context.Canceled): // by whom it was for
	case !s.embedFailing.Swap(true):
		s.Log.Warn("the embedding model does not answer in time, or failed: semantic windows compare words until it does", "error", err)
	}
}

// exchange is a message and its answer, to be embedded. The message is not there if it lies too far back.
type exchange []listed

// text is what an exchange's vector is of.
func (x exchange) text() string {
	text := ""
	for i, l := range x {
		if i > 0 {
			text += "\n"
		}
		text += prefix(l.content, embedBytes)
	}
	return text
}

// embedBehind has a vector made, in the background, of an exchange that is over, and of those that have none.
func (s *Service) embedBehind(t *turn) {
	config := t.begun.Session.Context
	if s.Embedder == nil || config.RetentionPolicy != Semantic || !config.CompressionEnabled ||
		t.err != nil || t.final.Status == "" || t.final.Error != nil || errors.Is(context.Cause(t.ctx), errCleared) {
		return
	}
	own := exchange{}
	for _, m := range []*Message{&t.begun.Message, &t.final} {
		own = append(own, listed{Message: window.Message{ID: m.ID}, content: m.Content, read: true})
	}
	todo := append([]exchange{own}, t.fitting.unembedded(s.Embedder.Name(), embedBatch-1)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return
	}
	select {
	case s.embedding <- struct{}{}:
		s.work.Go(func() {
			defer func() { <-s.embedding }()
			s.embedAll(t.key.Owner, t.key.SessionID, todo)
		})
	default: // a later reply catches up
	}
}

// unembedded returns the newest exchanges of the index, n at most, that have no vector of that model.
func (f *fitting) unembedded(model string, n int) (todo []exchange) {
	for i := len(f.listed) - 1; i >= 0 && len(todo) < n; i-- {
		l := f.listed[i]
		if !l.Answers || l.indexed == nil || l.indexed.Vector.MadeBy(model) {
			continue
		}
		from := i
		if i > 0 && !f.listed[i-1].Answers {
			from--
		}
		x := exchange(slices.Clone(f.listed[from : i+1]))
		for i := range x {
			x[i].indexed = nil // the whole index would wait with it
		}
		todo = append(todo, x)
	}
	return todo
}

// embedAll makes the vectors of exchanges and keeps them. If the model refuses them together, the first has its own all the same.
func (s *Service) embedAll(owner Owner, sessionID string, todo []exchange) {
	ctx, cancel := context.WithTimeout(s.embedCtx, embedCall)
	defer cancel()
	todo = s.readAll(ctx, owner, sessionID, todo)
	texts := make([]string, len(todo))
	for i, x := range todo {
		texts[i] = x.text()
	}
	vectors, err := s.embed(ctx, texts)
	if refused, ok := errors.AsType[*stream.ModelError](err); ok && refused.Code == stream.CodeProviderError && len(texts) > 1 {
		vectors, err = s.embed(ctx, texts[:1])
	}
	s.embedded(err)
	if err != nil {
		return
	}
	made := make([]ExchangeVector, len(vectors))
	for i, v := range vectors {
		made[i] = ExchangeVector{Reply: todo[i][len(todo[i])-1].ID, Vector: v}
	}
	if err := s.Store.SetVectors(ctx, owner, sessionID, made); err != nil && ctx.Err() == nil {
		s.Log.Warn("the vectors of a session's messages could not be kept; words are compared until they are made anew",
			"session", sessionID, "error", err)
	}
}

// readAll reads the texts of exchanges that are not there yet, in one trip. Where they cannot be had, only the first is left, which has
// its own.
func (s *Service) readAll(ctx context.Context, owner Owner, sessionID string, todo []exchange) []exchange {
	f := &fitting{Context: Context{Session: Session{ID: sessionID}}}
	var places []int
	for _, x := range todo {
		for _, l := range x {
			places = append(places, len(f.listed))
			f.listed = append(f.listed, l)
		}
	}
	if f.read(ctx, s.Store, owner, places) != nil {
		return todo[:1]
	}
	var all []exchange
	for at, i := 0, 0; i < len(todo); i++ {
		x := exchange(f.listed[at : at+len(todo[i])])
		at += len(x)
		if strings.TrimSpace(x.text()) != "" {
			all = append(all, x)
		}
	}
	return all
}
