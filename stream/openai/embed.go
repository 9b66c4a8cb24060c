package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

const (
	// maxInput is the maximum number of bytes that a request contains of one text. OpenAI's models refuse more than 8,191
	// tokens, and a text never has more tokens than bytes. In most languages, 8,191 bytes are about 2,000 tokens, which
	// common local models accept.
	maxInput = 8191
	// maxDimensions is the maximum length of a vector. numberBytes is the average number of bytes that a response may use
	// for each number of a vector.
	maxDimensions = 4096
	numberBytes   = 32
	// maxEnvelope is the maximum size of a response without its vectors, in bytes.
	maxEnvelope = 64 << 10
)

// Embedder is an embedding model of an OpenAI-compatible server. The methods of an Embedder may be called from any
// goroutine.
type Embedder struct {
	// static
	name   string
	config openai.ClientConfig
	http   *http.Client
}

var _ stream.Embedder = (*Embedder)(nil)

// NewEmbedder returns the embedding model that options describe. It sends no request.
func NewEmbedder(options Options) *Embedder {
	return &Embedder{
		name: options.Name, config: configOf(options),
		http: &http.Client{Transport: newTransport(), CheckRedirect: refuseRedirect},
	}
}

// Name returns the provider's name for the model.
func (e *Embedder) Name() string { return e.name }

// String returns the name of the model, so that printing a model does not print its key.
func (e *Embedder) String() string { return e.name }

// GoString returns the same as String.
func (e *Embedder) GoString() string { return e.name }

// Close closes idle connections. The caller may still use the model.
func (e *Embedder) Close() { e.http.CloseIdleConnections() }

// Embed requests the vectors of texts (see [stream.Embedder]). It sends at most the first 8,191 bytes of each text, without
// an incomplete character at the end.
func (e *Embedder) Embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	if len(texts) == 0 {
		return stream.Embeddings{}, nil
	}
	found, err := e.embed(ctx, texts)
	if err != nil && ctx.Err() != nil {
		return stream.Embeddings{}, ctx.Err()
	}
	return found, err
}

func (e *Embedder) embed(ctx context.Context, texts []string) (stream.Embeddings, error) {
	input := make([]string, len(texts))
	for i, text := range texts {
		input[i] = cut(text, maxInput)
	}
	body, err := send(e.config, e.http, func(client *openai.Client) error {
		_, err := client.CreateEmbeddings(ctx, openai.EmbeddingRequest{Input: input, Model: openai.EmbeddingModel(e.name)})
		return err
	})
	if err != nil {
		return stream.Embeddings{}, err
	}
	defer body.Close()
	limit := int64(len(texts))*maxDimensions*numberBytes + maxEnvelope
	a := embedded{json: json.NewDecoder(http.MaxBytesReader(nil, body, limit)), vectors: make([][]float32, len(texts))}
	if err := a.read(); err != nil {
		return stream.Embeddings{}, readFailure(err)
	}
	return stream.Embeddings{Vectors: a.vectors, Tokens: a.tokens}, nil
}

// readFailure converts an error of embedded.read to a *stream.ModelError.
func readFailure(err error) error {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	_, known := errors.AsType[*stream.ModelError](err)
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case known:
		return err
	case tooLarge:
		return failure(messageTooLarge, &cause{err: errTooLarge})
	case syntax, kind:
		return failure(messageUnreadable, &cause{err: errUnreadable})
	case errors.Is(err, errNoVectors):
		return failure(messageUnreadable, &cause{err: errNoVectors})
	}
	return failure(messageBrokeOff, &cause{err: sanitise(err)})
}

// cut returns the longest prefix of text that has at most n bytes and does not split a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

var errNoVectors = errors.New("the response does not have one vector for each text, all of the same length and none of them zero")

// embedded parses a response one vector at a time, so that the whole response is never in memory.
type embedded struct {
	json    *json.Decoder
	vectors [][]float32
	count   int // number of vectors read so far
	tokens  int // number of tokens, as counted by the provider
}

func (a *embedded) read() error {
	if err := a.delimiter('{'); err != nil {
		return err
	}
	for a.json.More() {
		name, err := a.json.Token()
		if err != nil {
			return err
		}
		if err := a.field(name); err != nil {
			return err
		}
	}
	if err := a.delimiter('}'); err != nil {
		return err
	}
	if a.count != len(a.vectors) {
		return errNoVectors
	}
	return nil
}

func (a *embedded) delimiter(want json.Delim) error {
	switch got, err := a.json.Token(); {
	case err != nil:
		return err
	case got != want:
		return errNoVectors
	}
	return nil
}

// field reads the value of the field with that name.
func (a *embedded) field(name json.Token) error {
	switch name {
	case "data":
		return a.data()
	case "usage":
		var usage struct {
			Prompt int `json:"prompt_tokens"`
		}
		err := a.json.Decode(&usage)
		a.tokens = min(max(usage.Prompt, 0), math.MaxInt32)
		return err
	}
	var value json.RawMessage
	if err := a.json.Decode(&value); err != nil {
		return err
	}
	if name == "error" && string(value) != "null" {
		return reported(append(append([]byte(`{"error":`), value...), `}`...), true)
	}
	return nil
}

// data reads the vectors and sorts them by their index. If a vector has no index, data takes the vectors in the order in
// which they arrive.
func (a *embedded) data() error {
	if err := a.delimiter('['); err != nil {
		return err
	}
	for a.json.More() {
		var v struct {
			Index     *int    `json:"index"`
			Embedding numbers `json:"embedding"`
		}
		if err := a.json.Decode(&v); err != nil {
			return err
		}
		at := a.count
		if v.Index != nil {
			at = *v.Index
		}
		if at < 0 || at >= len(a.vectors) || a.vectors[at] != nil || !v.Embedding.nonZero() {
			return errNoVectors
		}
		a.vectors[at] = v.Embedding
		a.count++
		for _, other := range a.vectors {
			if other != nil && len(other) != len(v.Embedding) {
				return errNoVectors
			}
		}
	}
	return a.delimiter(']')
}

// numbers is a vector. It has a JSON decoder that limits its length.
type numbers []float32

// UnmarshalJSON decodes an array of at most maxDimensions numbers. It returns errNoVectors for any other JSON.
func (n *numbers) UnmarshalJSON(text []byte) error {
	list, ok := bytes.CutPrefix(text, []byte("["))
	list, ok2 := bytes.CutSuffix(list, []byte("]"))
	if !ok || !ok2 {
		return errNoVectors
	}
	read := make(numbers, 0, min(bytes.Count(list, []byte(","))+1, maxDimensions))
	for number := range bytes.SplitSeq(list, []byte(",")) {
		x, err := strconv.ParseFloat(string(bytes.TrimSpace(number)), 32)
		if err != nil || len(read) == maxDimensions {
			return errNoVectors
		}
		read = append(read, float32(x))
	}
	*n = read
	return nil
}

// nonZero reports whether the vector has a number other than zero. It does not check for infinity and NaN, because JSON
// cannot express them.
func (n numbers) nonZero() bool {
	return slices.ContainsFunc(n, func(x float32) bool { return x != 0 })
}
