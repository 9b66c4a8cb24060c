package tokens

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// Counter counts tokens with one vocabulary. It may be used from any goroutine. Share one Counter per model, because
// each Counter builds its own vocabulary.
type Counter struct {
	encoding   *encoding
	vocabulary func() *vocabulary // built by the first call
}

// encoding is the way in which a family of models splits a text into tokens.
type encoding struct {
	name   string
	tokens string // see vocabulary
	split  splitter
}

var (
	o200kBase  = &encoding{"o200k_base", o200k, splitO200k}
	cl100kBase = &encoding{"cl100k_base", cl100k, splitCl100k}
)

// For returns the counter for a model, chosen by the model's name. GPT-4 (not GPT-4o or GPT-4.1), GPT-3.5, the
// embedding models, davinci-002 and babbage-002 use cl100k_base. All other models use o200k_base, including newer
// models, unknown models and models of other vendors. For ignores case and a path before the name ("openai/gpt-4"). For
// does not build the vocabulary.
func For(model string) *Counter {
	e := encodingOf(model)
	return &Counter{encoding: e, vocabulary: sync.OnceValue(func() *vocabulary { return newVocabulary(e.tokens) })}
}

// Encoding returns the name of the vocabulary: "o200k_base" or "cl100k_base".
func (c *Counter) Encoding() string { return c.encoding.name }

// Warm builds the vocabulary if it is not built yet. Call Warm in the background before the first text arrives. A Count
// during that time waits until the vocabulary is built.
func (c *Counter) Warm() { c.vocabulary() }

// Count returns the number of tokens of text; 0 if text is empty. The time grows linearly with the length of text. It
// counts each byte of invalid UTF-8 as U+FFFD. Only for text with a word of more than 64 KiB, the result may be a few
// tokens too high.
func (c *Counter) Count(text string) (n int) {
	if text == "" {
		return 0
	}
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	v := c.vocabulary()
	for text != "" {
		end := c.encoding.split(text)
		n += v.count(text[:end])
		text = text[end:]
	}
	return n
}

// encodingOf returns the encoding of a model, as tiktoken's table states it for the two encodings that chat models use.
func encodingOf(model string) *encoding {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	switch name, _, _ = strings.Cut(name, ":"); name { // in the name of a fine-tuned model, the owner follows after a colon
	case "gpt-4", "gpt-3.5", "gpt-35", "davinci-002", "babbage-002":
		return cl100kBase
	}
	for _, family := range []string{"gpt-4-", "gpt-3.5-", "gpt-35-", "text-embedding-"} {
		if strings.HasPrefix(name, family) {
			return cl100kBase
		}
	}
	return o200kBase
}
