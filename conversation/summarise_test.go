package conversation

import (
	"fmt"
	"testing"

	"parley/conversation/tokens"
	"parley/conversation/window"
)

func TestTheInstructionTakesNoMoreThanAFoldingAllowsIt(t *testing.T) {
	for _, model := range []string{"gpt-4o", "gpt-4"} {
		n := tokens.For(model).Count(fmt.Sprintf(foldInstruction, 1024)) + 2*window.MessageOverhead
		t.Logf("%s: %d tokens of %d", model, n, window.SummaryPromptOverhead)
		if n > window.SummaryPromptOverhead {
			t.Errorf("%s: %d tokens, more than %d", model, n, window.SummaryPromptOverhead)
		}
	}
}

func TestATextIsCutToItsTokensAtACharacter(t *testing.T) {
	s := &Service{Options: Options{Count: tokens.For("gpt-4o").Count}}
	for _, text := range []string{"the quick brown fox jumps over the lazy dog, again and again", "日本語のとても長い文章です。日本語のとても長い文章です。", "🎉🎉🎉🎉🎉👩‍🚀👩‍🚀👩‍🚀"} {
		all := s.Count(text)
		for limit := 1; limit <= all; limit++ {
			got := s.cut(text, limit)
			if n := s.Count(got); n > limit || limit == all && got != text || text[:len(got)] != got || s.Count(got) < limit/2 {
				t.Errorf("%q cut to %d tokens is %q, of %d", text, limit, got, n)
			}
		}
	}
}
