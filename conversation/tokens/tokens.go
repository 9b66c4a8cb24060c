// Package tokens counts what a text costs a model, with OpenAI's own vocabularies, embedded (design section 5).
//
// Counting is exact: the same figure as tiktoken's for ordinary text, whatever the text says. What looks like a special
// token ("<|endoftext|>") is text like any other. The overhead of the chat format is not counted here but by
// conversation/window.
//
// What it costs, measured on one core: the o200k vocabulary takes about 50 ms and 7 MiB of heap to build, cl100k 30 ms and
// 3.5 MiB, each once for a Counter (and as much again in garbage), and both some 12 MiB of the binary. A hundred words
// take about 45 µs. The dearest text of 10,000 characters that we could think of takes 9 ms, so a caller may count on
// the path of a request; [Counter.Warm], in the background when a server starts, spares the first one the building.
package tokens

import (
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer"
)

// Counter counts tokens by one vocabulary. It is safe for concurrent use, and is meant to be made once and shared.
type Counter struct {
	encoding   tokenizer.Encoding
	vocabulary func() *vocabulary // built once, by who asks first
}

// For returns the counter of a model's vocabulary, found by the model's name: cl100k_base for the GPT-4 and GPT-3.5
// families and the embedding models, o200k_base for everything newer and for what we do not know: models of other makers, and
// OpenAI's own before GPT-3.5, which are gone. A path before the name ("openai/gpt-4") and case are ignored. Nothing is
// built yet, so it costs nothing.
func For(model string) *Counter {
	c := &Counter{encoding: encodingOf(model)}
	c.vocabulary = sync.OnceValue(func() *vocabulary { return newVocabulary(c.encoding) })
	return c
}

// Encoding returns the name of the vocabulary: "o200k_base" or "cl100k_base".
func (c *Counter) Encoding() string { return string(c.encoding) }

// Warm builds the vocabulary, unless that is done. Call it in the background when a server starts: the first Count then
// waits for what is left of it, at most.
func (c *Counter) Warm() { c.vocabulary() }

// Count returns the number of tokens of text; 0 for the empty one. Its time grows with the length of the text, not
// faster. A text that is not valid UTF-8 is counted as if each bad byte were U+FFFD.
func (c *Counter) Count(text string) int {
	if text == "" {
		return 0
	}
	return c.vocabulary().count(text)
}

// encodingOf follows tiktoken's table of models for the two vocabularies that chat models use.
func encodingOf(model string) tokenizer.Encoding {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	switch name, _, _ = strings.Cut(name, ":"); name { // a fine-tuned model carries its owner after a colon
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
