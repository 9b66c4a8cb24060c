package stream

import "context"

// Embedder turns texts into vectors. Texts of similar meaning have vectors that are close to each other. The methods of
// an Embedder may be called from any goroutine.
type Embedder interface {
	// Name returns the provider's name for the embedding model. Embeddings of different models are never compared.
	Name() string
	// Embed returns a vector for each text, in the order of texts. All vectors have the same length. All numbers are finite,
	// and each vector has at least one number other than zero. Embed may ignore the end of a long text. It makes one
	// request, and returns soon after ctx ends. The error is ctx.Err() or a [*ModelError], and contains no text from the
	// provider or the caller.
	Embed(ctx context.Context, texts []string) (Embeddings, error)
}

// Embeddings is the result of [Embedder.Embed].
type Embeddings struct {
	Vectors [][]float32
	Tokens  int // number of tokens in all texts together, as counted by the provider; 0 if the provider gave no count
}
