//go:build !race

package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
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

// merge uses a heap. The test compares it with a plain implementation of byte-pair encoding. Pieces of more than fewBytes bytes
// take another path.
func TestMerge_EqualsPlainBytePairEncoding(t *testing.T) {
	t.Parallel()
	alphabets := map[string]string{
		"whitespace": "   \n\n\r\t\u00a0\u2028\u3000", "letters": "eeetttaaoinshrdlucmEARé", "ideographs": "的一是不了人我在有漢字", "emoji": "😀👍🏽\u200d❤\ufe0f",
		"punctuation": "===---///***(){}\"'<>", "one letter": "a",
	}
	for _, e := range []*encoding{o200kBase, cl100kBase} {
		v := newVocabulary(e.tokens)
		random := rand.New(rand.NewPCG(3, 4))
		for name, alphabet := range alphabets {
			for range 300 {
				var text strings.Builder
				for range 1 + random.IntN(60) {
					text.WriteRune([]rune(alphabet)[random.IntN(len([]rune(alphabet)))])
				}
				piece := text.String()
				if got, want := v.merge(piece), plainMerge(v, piece); got != want {
					t.Fatalf("%s, %s: %q merges into %d tokens, want %d", e.name, name, piece, got, want)
				}
			}
		}
	}
}

// plainMerge counts the tokens of a piece by byte-pair encoding, in quadratic time.
func plainMerge(v *vocabulary, piece string) int {
	var parts []string
	for i := range len(piece) {
		parts = append(parts, piece[i:i+1])
	}
	for {
		best, at := ^uint32(0), -1
		for i := range len(parts) - 1 {
			if rank := v.find(parts[i] + parts[i+1]); rank != none && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return len(parts)
		}
		parts = append(append(parts[:at:at], parts[at]+parts[at+1]), parts[at+2:]...)
	}
}

// The files hold OpenAI's tokens if they give the files that OpenAI publishes. tiktoken_ext/openai_public.py has the hashes.
func TestVocabulary_TokensAndRanks_AsPublished(t *testing.T) {
	t.Parallel()
	for e, want := range map[*encoding]string{
		o200kBase:  "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
		cl100kBase: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
	} {
		published, rank := sha256.New(), 0
		for at := 0; at < len(e.tokens); rank++ {
			end := at + 1 + int(e.tokens[at])
			fmt.Fprintf(published, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(e.tokens[at+1:end])), rank)
			at = end
		}
		if got := hex.EncodeToString(published.Sum(nil)); got != want {
			t.Errorf("%s: the tokens have the hash %s, want %s", e.name, got, want)
		}
	}
}
