package tokens

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// Counter counts tokens with one vocabulary. It may be used from any goroutine. Make one and share it.
type Counter struct {
	encoding   tokenizer.Encoding
	vocabulary func() *vocabulary // built by the first call
}

// For returns the counter for a model, chosen by the model's name: cl100k_base for the GPT-4 and GPT-3.5 families and
// the embedding models, o200k_base for newer and for unknown models, which includes those of other makers. A path
// before the name ("openai/gpt-4") and case are ignored. Nothing is built yet.
func For(model string) *Counter {
	c := &Counter{encoding: encodingOf(model)}
	c.vocabulary = sync.OnceValue(func() *vocabulary { return newVocabulary(c.encoding) })
	return c
}

// Encoding returns the name of the vocabulary: "o200k_base" or "cl100k_base".
func (c *Counter) Encoding() string { return string(c.encoding) }

// Warm builds the vocabulary if it is not built yet. Call it in the background when a server starts: a Count that
// comes meanwhile waits for it.
func (c *Counter) Warm() { c.vocabulary() }

// Count returns the number of tokens of text; 0 for the empty one. Its time grows linearly with the text. In invalid
// UTF-8 each bad byte counts as U+FFFD.
func (c *Counter) Count(text string) int {
	if text == "" {
		return 0
	}
	return c.vocabulary().count(text)
}

// encodingOf returns the vocabulary of a model as in tiktoken's table, for the two that chat models use.
func encodingOf(model string) tokenizer.Encoding {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	switch name, _, _ = strings.Cut(name, ":"); name { // the name of a fine-tuned model has its owner after a colon
	case "gpt-4", "gpt-3.5", "gpt-35", "davinci-002", "babbage-002":
		return tokenizer.Cl100kBase
	}
	for _, family := range []string{"gpt-4-", "gpt-3.5-", "gpt-35-", "text-embedding-"} {
		if strings.HasPrefix(name, family) {
			return tokenizer.Cl100kBase
		}
	}
	return tokenizer.O200kBase
}
