package stream

import "context"

// Embedder says what texts mean (design section 5). Its methods may be called from any goroutine.
type Embedder interface {
	// Name is what the embedding model is called by its provider. What another model made does not compare.
	Name() string
	// Embed returns a vector for each text, in their order: as many numbers for each, finite, and not all of them zero. It may take
	// no more of a text than its beginning. It asks once, and returns soon after ctx ended. The error is ctx's own or a
	// [*ModelError], and never quotes the provider or a text.
	Embed(ctx context.Context, texts []string) (Embeddings, error)
}

// Embeddings are what an Embedder made of texts.
type Embeddings struct {
	Vectors [][]float32
	Tokens  int // of all the texts, by the provider's own count; 0 if it gave none
}
