package stream

import "context"

// Embedder turns texts into vectors that are close if their meanings are. Its methods may be called from any
// goroutine.
type Embedder interface {
	// Name is the provider's name of the embedding model. Vectors of different models are never compared.
	Name() string
	// Embed returns a vector for each text, in their order. All have the same length, are finite and not all zero. It
	// may use only the beginning of a text. It makes one request and returns soon after ctx ends. The error is that
	// of ctx or a [*ModelError], and never quotes the provider or a text.
	Embed(ctx context.Context, texts []string) (Embeddings, error)
}

// Embeddings is the result of [Embedder.Embed].
type Embeddings struct {
	Vectors [][]float32
	Tokens  int // of all texts, as counted by the provider; 0 if it gave no count
}
