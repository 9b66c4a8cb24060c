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
	// maxInput is how many bytes of a text are sent. OpenAI's models take 8,191 tokens and refuse more; no tokenizer makes more
	// tokens than bytes, and of most languages 8,191 bytes are some 2,000, which is what the local models take that people run.
	maxInput = 8191
	// maxDimensions bounds a vector, and numberBytes what a server may need to write one number of it.
	maxDimensions = 4096
	numberBytes   = 32
	// maxAround is how many bytes an answer may have around its vectors.
	maxAround = 64 << 10
)

// Embedder is an embedding model behind an OpenAI-compatible API. Its methods may be called from any goroutine.
type Embedder struct {
	// static
	name   string
	config openai.ClientConfig
	http   *http.Client
}

var _ stream.Embedder = (*Embedder)(nil)

// NewEmbedder returns the embedding model that options name. It asks nothing of the network.
func NewEmbedder(options Options) *Embedder {
	return &Embedder{
		name: options.Name, config: configOf(options),
		http: &http.Client{Transport: newTransport(), CheckRedirect: stayHere},
	}
}

// Name is what the provider calls the model.
func (e *Embedder) Name() string { return e.name }

// String is the model's name: a model that is printed by mistake does not print its key.
func (e *Embedder) String() string { return e.name }

// GoString is as String.
func (e *Embedder) GoString() string { return e.name }

// Close closes the connections that nobody uses. The model may still be used afterwards.
func (e *Embedder) Close() { e.http.CloseIdleConnections() }

// Embed asks for the vectors of texts (see [stream.Embedder]). A text of more than 8,191 bytes is cut at a character's border.
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
	body, err := ask(e.config, e.http, func(client *openai.Client) error {
		_, err := client.CreateEmbeddings(ctx, openai.EmbeddingRequest{Input: input, Model: openai.EmbeddingModel(e.name)})
		return err
	})
	if err != nil {
		return stream.Embeddings{}, err
	}
	defer body.Close()
	limit := int64(len(texts))*maxDimensions*numberBytes + maxAround
	a := embedded{json: json.NewDecoder(http.MaxBytesReader(nil, body, limit)), vectors: make([][]float32, len(texts))}
	if err := a.read(); err != nil {
		return stream.Embeddings{}, unread(err)
	}
	return stream.Embeddings{Vectors: a.vectors, Tokens: a.tokens}, nil
}

// unread is the failure of an answer that could not be read.
func unread(err error) error {
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
	return failure(messageBrokeOff, &cause{err: plain(err)})
}

// cut returns the characters that the first n bytes of text hold whole.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

var errNoVectors = errors.New("not a vector for each text, of as many finite numbers, not all of them zero")

// embedded is an answer that is being read: piece by piece, so that it costs no more than the vectors that were asked for,
// whatever a server makes of it.
type embedded struct {
	json    *json.Decoder
	vectors [][]float32
	count   int // of the vectors that were read
	tokens  int
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

// field reads the value of a field of the answer.
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
		return reported(value)
	}
	return nil
}

// data reads the vectors. They go by their index; servers that leave it out have them in order.
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
		if at < 0 || at >= len(a.vectors) || a.vectors[at] != nil || !v.Embedding.haveDirection() {
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

// numbers are those of a vector, at most maxDimensions.
type numbers []float32

// UnmarshalJSON reads an array of numbers, and no more of it than a vector has.
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

// haveDirection reports whether not all numbers are zero. None of them is infinite or NaN: JSON has neither.
func (n numbers) haveDirection() bool {
	return slices.ContainsFunc(n, func(x float32) bool { return x != 0 })
}
