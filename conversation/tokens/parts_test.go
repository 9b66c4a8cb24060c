//go:build !race

package tokens

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// prose returns n random words with punctuation, numbers and lines.
func prose(n int) string {
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"the", "Quick", "brown", "fox's", "jumps,", "2026", "over.", "naïve", "(lazy)", "dog\n\n", "and", "isn't", "so"}
	var b strings.Builder
	for range n {
		b.WriteString(words[random.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// The library counts each text whole. For prose, the counter must return the same number. For a text without spaces, it
// may return up to 4 tokens more.
func TestCount_TextOfSeveralParts_AboutSameAsWhole(t *testing.T) {
	t.Parallel()
	c := For("gpt-4o")
	for name, test := range map[string]struct {
		text string
		more int
	}{
		"prose":             {prose(20_000), 0},
		"just over a part":  {strings.Repeat("a word ", partSize)[:partSize+1], 0},
		"one long word":     {strings.Repeat("abcdefghij", partSize/4), 4},
		"without spaces":    {strings.Repeat("漢字かな", partSize/5), 4},
		"four-byte letters": {strings.Repeat("🙂", partSize/2), 4},
		"invalid UTF-8":     {strings.Repeat("\xff", 2*partSize), 4},
	} {
		if want, got := c.vocabulary().count(test.text), c.Count(test.text); got < want || got > want+test.more {
			t.Errorf("%s: %d tokens, want %d, or at most %d more", name, got, want, test.more)
		}
	}
	if text := "a" + strings.Repeat("🙂", partSize); !utf8.ValidString(text[:endOfPart(text)]) {
		t.Error("a part ends within a character")
	}
}

// TestCount_LongText_BoundedMemory counts texts of 2 MiB. If the library got the long word at once, it would take over
// 54 MiB. In parts, the growth is mostly garbage, and its size does not depend on the length of the text.
func TestCount_LongText_BoundedMemory(t *testing.T) {
	c := For("gpt-4o")
	c.Warm()
	for name, text := range map[string]string{"words": strings.Repeat("lorem ipsum dolor ", 2<<20/18), "one word": strings.Repeat("a", 2<<20)} {
		if grown := heapGrowth(func() { c.Count(text) }); grown > 24<<20 {
			t.Errorf("%s: the heap grew by %d MiB, want at most 24", name, grown>>20)
		}
	}
}

// heapGrowth returns the number of bytes that the heap takes from the system while run runs.
func heapGrowth(run func()) int {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return int(after.HeapSys) - int(before.HeapSys)
}
