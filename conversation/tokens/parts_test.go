//go:build !race

package tokens

import (
	"runtime"
	"strings"
	"testing"
)

// A word of more than partSize bytes is cut between characters. Each of these words is cut once or more often.
func TestCount_WordLargerThanAPart_FewTokensMore(t *testing.T) {
	t.Parallel()
	c := For("gpt-4o")
	for name, text := range map[string]string{
		"ASCII":             strings.Repeat("abcdefghij", partSize/4),
		"ideographs":        strings.Repeat("漢字かな", partSize/5),
		"four-byte letters": strings.Repeat("🙂", partSize/2),
		"invalid UTF-8":     strings.Repeat("\xff", partSize),
	} {
		want := c.vocabulary().merge(string([]rune(text)))
		if got := c.Count(text); got < want || got > want+8 {
			t.Errorf("%s: %d tokens, want %d, or at most 8 more", name, got, want)
		}
	}
}

// TestCount_LongText_BoundedMemory counts texts of 2 MiB. If merge got the long word at once, it would take 56 MiB. In parts,
// the growth is mostly garbage, and its size does not depend on the length of the text.
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
