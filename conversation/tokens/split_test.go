//go:build !race

package tokens

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode"
	"unicode/utf8"
)

// pieces returns the pieces of a text.
func pieces(split splitter, text string) (all []string) {
	for text != "" {
		end := split(text)
		all = append(all, text[:end])
		text = text[end:]
	}
	return all
}

// hardToSplit has words and characters of each class, so that a random sequence of them has every pair of classes.
var hardToSplit = []string{"hello", "World", "I'LL", "don't", "WE'RE", "aB", "Ab", "ABC", "  ", "    ", "\n\n", "\n \n", "\r\n", "\r", "\t", " ", "\v", "\f",
	"!", "?!", "/", "//\n", "\n/", "'", "''", "'s", "'S", "'ſ", "'re", "'Ve", "'l", "'lL", "'d", "'M", "'T", "'x", "1234", "7", "½", "Ⅷ", "é", "É", "漢字", "😀",
	"☃\ufe0f", "❤\ufe0f\n", "\u0301", " \u0301", " !\u0301", "!!\u0301", "\u0301A", "\u0301Ab", "\u20dd", "\u00a0", "\u2028", "\u3000", "\u0085", "\u1680", "\u200b",
	"\u180e", "ǅ", "ʰ", "ªº", "न्", "\ufffd", "\x00", "\U000e0100", "\U00010400", "\U00010428", "\U0001d7d8", "\U0010ffff"}

// TestSplit_AnyText_SameAsExpression compares the pieces with those of the original expressions. Some texts have the characters of
// Unicode in several surroundings: each character of the first plane, and every 32nd of the others. Other texts combine words
// that are difficult to split.
func TestSplit_AnyText_SameAsExpression(t *testing.T) {
	t.Parallel()
	for _, e := range []*encoding{o200kBase, cl100kBase} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			expression := expressionOf(t, e.name)
			compare := func(text string) {
				if got, want := pieces(e.split, text), expression(text); !slices.Equal(got, want) {
					t.Fatalf("%q has the pieces\n%q, want\n%q", text, got, want)
				}
			}
			step := rune(1)
			for r := rune(0); r <= unicode.MaxRune; r += step {
				if r == 0x10000 {
					step = 32
				}
				if char := string(r); utf8.ValidRune(r) {
					compare("a" + char + "B " + char + "'s" + char + char)
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 5_000 {
				text := ""
				for range 1 + random.IntN(12) {
					text += hardToSplit[random.IntN(len(hardToSplit))]
				}
				compare(text)
			}
		})
	}
}
