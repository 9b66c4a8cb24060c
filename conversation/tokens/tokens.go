package tokens

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer"
)

// Counter counts tokens with one vocabulary. It may be used from any goroutine. Share one Counter per model, because
// each Counter builds its own vocabulary.
type Counter struct {
	encoding   tokenizer.Encoding
	vocabulary func() *vocabulary // built by the first call
}

// For returns the counter for a model, chosen by the model's name. GPT-4 (not GPT-4o or GPT-4.1), GPT-3.5, the
// embedding models, davinci-002 and babbage-002 use cl100k_base. All other models use o200k_base, including newer
// models, unknown models and models of other vendors. For ignores case and a path before the name ("openai/gpt-4"). For
// does not build the vocabulary.
func For(model string) *Counter {
	c := &Counter{encoding: encodingOf(model)}
	c.vocabulary = sync.OnceValue(func() *vocabulary { return newVocabulary(c.encoding) })
	return c
}

// Encoding returns the name of the vocabulary: "o200k_base" or "cl100k_base".
func (c *Counter) Encoding() string { return string(c.encoding) }

// Warm builds the vocabulary if it is not built yet. Call Warm in the background before the first text arrives. A Count
// during that time waits until the vocabulary is built.
func (c *Counter) Warm() { c.vocabulary() }

// partSize is the maximum number of bytes that the library gets at once, because it takes up to 40 bytes of memory for
// each byte of text. A message of a client is never larger: it has at most 10,000 characters of 4 bytes.
const partSize = 64 << 10

// Count returns the number of tokens of text; 0 if text is empty. The time grows linearly with the length of text. It
// counts each byte of invalid UTF-8 as U+FFFD. If text is larger than 64 KiB, Count counts it in parts. The result may
// then be a few tokens higher for each part.
func (c *Counter) Count(text string) (n int) {
	for len(text) > partSize {
		end := endOfPart(text)
		n += c.vocabulary().count(text[:end])
		text = text[end:]
	}
	if text != "" {
		n += c.vocabulary().count(text)
	}
	return n
}

// endOfPart returns the end of the first part of a text that is larger than partSize. If possible, the part ends in the
// last KiB of its maximum size, between a letter and a space that another letter follows: no token spans such a place.
// Otherwise, the part ends after a whole character.
func endOfPart(text string) int {
	letter := func(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
	for end := partSize - 1; end > partSize-1024; end-- {
		if text[end] == ' ' && letter(text[end-1]) && letter(text[end+1]) {
			return end
		}
	}
	end := partSize
	for end > partSize-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return end
}

// encodingOf returns the encoding of a model, as tiktoken's table states it for the two encodings that chat models use.
func encodingOf(model string) tokenizer.Encoding {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	switch name, _, _ = strings.Cut(name, ":"); name { // in the name of a fine-tuned model, the owner follows after a colon
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
