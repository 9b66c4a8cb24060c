//go:build !race

package tokens

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// longest is the maximum length of a message in characters.
const longest = 10_000

// The test compares the processor time of many hostile texts with the time of prose of the same length. No text may
// take more than 300 times as long as prose; today the worst text takes 70 times as long, because each of its characters is
// merged from its bytes. An algorithm in quadratic time takes thousands of times as long. A text over the limit is measured
// again, so that a busy machine does not fail the test.
func TestCount_HostileText_AtMost300TimesProse(t *testing.T) {
	const times, tries = 300, 10
	prose := string([]rune(strings.Repeat("The quick brown fox jumps over the lazy dog, and it isn't late. ", longest/60))[:longest])
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		c := For(model)
		c.Warm()
		best := func(text string, enough time.Duration) time.Duration {
			best := time.Hour
			for try := 0; try < tries && best > enough; try++ {
				start := processorTime(t)
				c.Count(text)
				best = min(best, processorTime(t)-start)
			}
			return best
		}
		limit := times * max(best(prose, 0), time.Microsecond)
		worst, of := time.Duration(0), ""
		for name, text := range hostile() {
			cost := best(text, limit)
			if cost > limit {
				t.Errorf("%s: %s took %v, prose %v", model, name, cost, limit/times)
			}
			if cost > worst {
				worst, of = cost, name
			}
		}
		t.Logf("%s: prose takes %v, the worst is %s, %v", c.Encoding(), limit/times, of, worst)
	}
}

// processorTime returns the processor time that this process has used, including garbage collection.
func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// hostile returns texts of 10,000 characters by name. Some repeat a short pattern: alone, after a space, and before a
// letter or a newline. Others have random characters of several ranges.
func hostile() map[string]string {
	texts := make(map[string]string)
	cut := func(text string) string { return string([]rune(text)[:longest]) }
	for _, pattern := range []string{
		"a", "A", "aA", "Aa", "a ", "q1", "0", " ", "\t", "\n", "\r", "\r\n", "\n ", " \n", "\n\t", "\n\u3000", ".\n \n", "z\n",
		"x\n \n", "😀", "👨\u200d👩\u200d👧", "❤\ufe0f", "❤\ufe0f\n \n", "漢", "漢字", "あ", "한", "ا", "न्", "é", "e\u0301", "\u0301", "!\u0301", "A\u0301",
		"ß", "İ", "ǅ", "ʰ", "ſ", "'ſ", "'", "'s", "'S ", "!", "!?", "^", "\\", "/", "//\n", "<|endoftext|>", "\u00a0", "\u2028", "\u200b", "\x01",
		"\U0010ffff", "supercalifragilistic", "the ", "<", "=", "-", "_", "*", "{}", "\"",
	} {
		text := cut(strings.Repeat(pattern, longest))
		texts[fmt.Sprintf("%q repeated", pattern)] = text
		texts[fmt.Sprintf("%q after a space", pattern)] = cut(" " + text)
		texts[fmt.Sprintf("%q before a letter", pattern)] = cut(text[utf8.RuneLen([]rune(text)[0]):] + "x")
		texts[fmt.Sprintf("%q before a newline", pattern)] = cut(text[utf8.RuneLen([]rune(text)[0]):] + "\n")
	}
	random := rand.New(rand.NewPCG(5, 6))
	for name, set := range map[string][2]rune{
		"ASCII": {1, 0x7f}, "letters": {'a', 'z'}, "digits": {'0', '9'}, "punctuation": {'!', '/'}, "marks": {0x300, 0x36f}, "ideographs": {0x4e00, 0x9fff},
		"emoji": {0x1f300, 0x1faff}, "the first plane": {0x20, 0xd7ff}, "the other planes": {0x10000, 0x10ffff},
	} {
		texts["random characters of "+name] = repeat(func() rune { return set[0] + random.Int32N(set[1]-set[0]+1) })
	}
	blanks := []rune(" \n\r\t\u00a0\u2028\u3000")
	texts["one long word of random letters and marks"] = repeat(func() rune { return []rune("aé漢א\u0301ʰǅZ")[random.IntN(8)] })
	texts["random bytes as characters"] = repeat(func() rune { return random.Int32N(0x100) })
	texts["random whitespace"] = repeat(func() rune { return blanks[random.IntN(len(blanks))] })
	texts["random blank lines"] = repeat(func() rune { return rune(" \n"[random.IntN(2)]) })
	return texts
}

func repeat(next func() rune) string {
	text := make([]rune, longest)
	for i := range text {
		text[i] = next()
	}
	return string(text)
}

func TestCount_TextTenTimesLonger_TimeGrowsLinearly(t *testing.T) {
	c := For("gpt-4o")
	c.Warm()
	cost := func(pattern string, n int) time.Duration {
		text := strings.Repeat(pattern, n/len(pattern))
		best := time.Hour
		for range 3 {
			start := processorTime(t)
			c.Count(text)
			best = min(best, processorTime(t)-start)
		}
		return best
	}
	for _, pattern := range []string{"\n x\n \n", " ", "\n\t", "a", "ABC", "\u0301A", "漢", "'S", "!\n"} {
		if one, ten := cost(pattern, 30_000), cost(pattern, 300_000); ten > 30*max(one, time.Millisecond) {
			t.Errorf("%q: a text takes %v, and ten times the text takes %v, want at most 30 times as long", pattern, one, ten)
		}
	}
}

func BenchmarkWarm(b *testing.B) {
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		b.Run(For(model).Encoding(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				For(model).Warm()
			}
		})
	}
}

func BenchmarkCount(b *testing.B) {
	words := strings.Repeat("The quick brown fox jumps over the lazy dog, and it isn't late. ", 8)[:512]
	for name, text := range map[string]string{"100-words": words, "a-word": "hello", "10000-emoji": strings.Repeat("😀", longest)} {
		b.Run(name, func(b *testing.B) {
			c := For("gpt-4o")
			c.Warm()
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				c.Count(text)
			}
		})
	}
}

// A turn counts the tokens of its message, and of its reply if the provider reports no usage.
func TestCount_OrdinaryText_AllocatesNothing(t *testing.T) {
	c := For("gpt-4o")
	c.Warm()
	text := prose(1_000) + strings.Repeat("x", fewBytes-1) + " 漢字かな交じり文 😀👍🏽"
	if n := testing.AllocsPerRun(10, func() { c.Count(text) }); n != 0 {
		t.Errorf("counting a text of %d bytes allocates %v objects, want none", len(text), n)
	}
}

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
