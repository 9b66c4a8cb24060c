package stream

import "context"

// Embedder turns texts into vectors. Texts of similar meaning have vectors that are close. Its methods may be called from
// any goroutine.
type Embedder interface {
	// Name returns the provider's name of the embedding model. Embeddings of different models are never compared.
	Name() string
	// Embed returns a vector for each text, in the order of texts. All vectors have the same length, are finite, and have
	// a number that is not zero. It may use only the beginning of a text. It makes one request and returns soon after ctx
	// ends. The error is ctx.Err() or a [*ModelError], and contains no text from the provider or the caller.
	Embed(ctx context.Context, texts []string) (Embeddings, error)
}

// Embeddings is the result of [Embedder.Embed].
type Embeddings struct {
	Vectors [][]float32
	Tokens  int // total of all texts, as counted by the provider; 0 if it gave no count
}
