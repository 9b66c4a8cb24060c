package background

import (
	"fmt"
	"testing"

	"parley/conversation/tokens"
	"parley/conversation/window"
)

func TestInstruction_FitsSummaryPromptOverhead(t *testing.T) {
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		n := tokens.For(model).Count(fmt.Sprintf(instruction, 1024)) + 2*window.MessageOverhead
		t.Logf("%s: %d tokens of %d", model, n, window.SummaryPromptOverhead)
		if n > window.SummaryPromptOverhead {
			t.Errorf("%s: %d tokens, more than %d", model, n, window.SummaryPromptOverhead)
		}
	}
}

func TestCut_EachLimit_WholeCharactersWithinLimit(t *testing.T) {
	count := tokens.For("gpt-4o").Count
	for _, text := range []string{"the quick brown fox jumps over the lazy dog, again and again", "日本語のとても長い文章です。日本語のとても長い文章です。", "🎉🎉🎉🎉🎉👩‍🚀👩‍🚀👩‍🚀"} {
		all := count(text)
		for limit := 1; limit <= all; limit++ {
			got := cut(count, text, limit)
			if n := count(got); n > limit || limit == all && got != text || text[:len(got)] != got || n < limit/2 {
				t.Errorf("%q, cut to %d tokens, is %q with %d tokens", text, limit, got, n)
			}
		}
	}
}
