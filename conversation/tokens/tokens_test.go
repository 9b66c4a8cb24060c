//go:build !race

package tokens

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
)

func TestFor_ModelName_ChoosesVocabulary(t *testing.T) {
	for model, want := range map[string]string{
		"":                             "o200k_base",
		"gpt-4o":                       "o200k_base",
		"gpt-4o-mini-2024-07-18":       "o200k_base",
		"chatgpt-4o-latest":            "o200k_base",
		"gpt-4.1":                      "o200k_base",
		"gpt-4.5-preview":              "o200k_base",
		"gpt-5-nano":                   "o200k_base",
		"gpt-oss-120b":                 "o200k_base",
		"gpt-4.1-mini-2025-04-14":      "o200k_base",
		"gpt-5":                        "o200k_base",
		"gpt-5.1-codex":                "o200k_base",
		"o1":                           "o200k_base",
		"o3-mini":                      "o200k_base",
		"o4-mini-2025-04-16":           "o200k_base",
		"llama3.2:1b":                  "o200k_base",
		"qwen2.5-0.5b-instruct":        "o200k_base",
		"ft:gpt-4o:acme::7p4lURel":     "o200k_base",
		"gpt-4":                        "cl100k_base",
		"gpt-4-turbo":                  "cl100k_base",
		"gpt-4-0613":                   "cl100k_base",
		"GPT-4":                        "cl100k_base",
		"openai/gpt-4":                 "cl100k_base",
		"gpt-3.5-turbo":                "cl100k_base",
		"gpt-35-turbo-16k":             "cl100k_base",
		"ft:gpt-3.5-turbo:acme::7p4lU": "cl100k_base",
		"ft:gpt-4:acme":                "cl100k_base",
		"text-embedding-3-small":       "cl100k_base",
		"text-embedding-3-large":       "cl100k_base",
		"text-embedding-ada-002":       "cl100k_base",
		"gpt-4-32k":                    "cl100k_base",
		"gpt-4-turbo-2024-04-09":       "cl100k_base",
		"text-davinci-003":             "o200k_base", // tiktoken uses an older encoding, but the model no longer exists
	} {
		if got := For(model).Encoding(); got != want {
			t.Errorf("For(%q) counts by %s, want %s", model, got, want)
		}
	}
}

// The sources of the counts are in references_test.go.
func TestCount_PublishedReferences_Equal(t *testing.T) {
	o200k, cl100k := For("gpt-4o"), For("gpt-4")
	for _, r := range references {
		if got := o200k.Count(r.text); r.o200k != unpublished && got != r.o200k {
			t.Errorf("o200k_base: %q is %d tokens, published: %d", r.text, got, r.o200k)
		}
		if got := cl100k.Count(r.text); r.cl100k != unpublished && got != r.cl100k {
			t.Errorf("cl100k_base: %q is %d tokens, published: %d", r.text, got, r.cl100k)
		}
	}
}

func TestCount_SpecialTokens_CountedAsText(t *testing.T) {
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		c := For(model)
		for _, text := range []string{"<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|im_start|>", "a<|endoftext|>b"} {
			if got := c.Count(text); got < 5 || got > len(text) {
				t.Errorf("%s: %q is %d tokens", model, text, got)
			}
		}
	}
}

func TestCount_InvalidUTF8_AtMost3TokensPerByte(t *testing.T) {
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		c := For(model)
		for _, text := range []string{"\xff", "a\xc3", "\xed\xa0\x80", "\n \xe2\x80\n \n", strings.Repeat("\x80", 1000)} {
			replaced := strings.ToValidUTF8(text, "\ufffd")
			if got := c.Count(text); got < 1 || got > 3*len(text) {
				t.Errorf("%s: %q is %d tokens, %q is %d", model, text, got, replaced, c.Count(replaced))
			}
		}
	}
}

// The count of a text must equal the sum of the counts of its pieces. A second regular expression engine splits the
// text with the original expressions of the encoding. The texts combine words that are difficult to split.
func TestCount_TextHardToSplit_SumOfPieces(t *testing.T) {
	words := []string{"hello", "World", "I'LL", "don't", "  ", "    ", "\n\n", "\n \n", "\r\n", "\t", " ", "!", "?!", "'s", "'S",
		"1234", "é", "漢字", "😀", "☃\ufe0f", "❤\ufe0f\n", "\u0301", " !\u0301", "!!\u0301", "\u00a0", "\u2028", "\u3000", "\u0085", "ǅ", "ʰ", "न्"}
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		c, split := For(model), splitter(t, For(model).Encoding())
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			var text strings.Builder
			for range 1 + random.IntN(20) {
				text.WriteString(words[random.IntN(len(words))])
			}
			want := 0
			for _, piece := range split(text.String()) {
				want += c.Count(piece)
			}
			if got := c.Count(text.String()); got != want {
				t.Fatalf("%s: %q is %d tokens, its pieces %q are %d", model, text.String(), got, split(text.String()), want)
			}
		}
	}
}

// merge uses a heap. The test compares it with a plain implementation of byte-pair encoding.
func TestMerge_EqualsPlainBytePairEncoding(t *testing.T) {
	const alphabet = "   \n\n\r\t\u00a0\u2028\u3000"
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		v := For(model).vocabulary()
		random := rand.New(rand.NewPCG(3, 4))
		for range 2_000 {
			var text strings.Builder
			for range 1 + random.IntN(60) {
				text.WriteRune([]rune(alphabet)[random.IntN(len([]rune(alphabet)))])
			}
			piece := text.String()
			if got, want := v.merge(piece), plainMerge(v.blanks(), piece); got != want {
				t.Fatalf("%s: %q merges into %d tokens, want %d", model, piece, got, want)
			}
			if strings.TrimFunc(piece, unicode.IsSpace) != "" {
				t.Fatalf("%q is not whitespace", piece)
			}
		}
	}
}

// plainMerge counts the tokens of a piece by byte-pair encoding, in quadratic time.
func plainMerge(ranks map[string]uint32, piece string) int {
	if _, ok := ranks[piece]; ok {
		return 1
	}
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		best, at := ^uint32(0), -1
		for i := range len(parts) - 1 {
			if rank, ok := ranks[parts[i]+parts[i+1]]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return len(parts)
		}
		parts = append(append(parts[:at:at], parts[at]+parts[at+1]), parts[at+2:]...)
	}
}
