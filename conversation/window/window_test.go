package window

import (
	"testing"

	"pgregory.net/rapid"
)

func TestReplyRoom_AnySize_RestIsBudget(t *testing.T) {
	for _, test := range []struct {
		size Size
		room int
	}{
		{Size{MaxTokens: 64}, 16}, {Size{MaxTokens: 4096}, 1024}, {Size{MaxTokens: 16384}, 4096}, {Size{MaxTokens: 1_000_000}, 4096},
		{Size{MaxTokens: 4096, Instructions: 1000}, 1024},
		{Size{MaxTokens: 4096, Reply: 1}, 1}, {Size{MaxTokens: 4096, Reply: 1023}, 1023}, {Size{MaxTokens: 4096, Reply: 3000}, 1024},
		{Size{MaxTokens: 100_000, Reply: 50_000}, 4096}, {Size{MaxTokens: 1024, Reply: 50_000, Instructions: 500}, 256},
	} {
		if got := test.size.ReplyRoom(); got != test.room {
			t.Errorf("the reply room of %+v is %d, want %d", test.size, got, test.room)
		}
		if sum := test.room + test.size.Budget() + PromptOverhead + test.size.Instructions; sum != test.size.MaxTokens {
			t.Errorf("reply room, budget, overhead and instructions of %+v sum to %d", test.size, sum)
		}
	}
}

// anySize draws a size with a budget of at least MinBudget.
func anySize(t *rapid.T) Size {
	z := Size{MaxTokens: rapid.IntRange(64, 4000).Draw(t, "maxTokens")}
	if rapid.Bool().Draw(t, "has instructions") {
		z.Instructions = rapid.IntRange(MessageOverhead+1, max(MessageOverhead+1, z.Budget()-MinBudget)).Draw(t, "instructions")
	}
	if rapid.Bool().Draw(t, "has a limit of the reply") {
		z.Reply = rapid.IntRange(1, 2*z.MaxTokens).Draw(t, "limit of the reply")
	}
	return z
}

func TestCheck_AnySizes_OKOnlyIfPromptFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := anySize(t)
		history := rapid.IntRange(0, 20_000).Draw(t, "history")
		tokens := rapid.IntRange(1, 12_000).Draw(t, "tokens")
		for _, compression := range []bool{false, true} {
			current, ok := size.Check(compression, history, tokens)
			needed := tokens
			if !compression {
				needed += history
			}
			if fits := needed+PromptOverhead+size.Instructions+size.ReplyRoom() <= size.MaxTokens; ok != fits {
				t.Fatalf("compression %v: Check returned %v, but the prompt fits: %v", compression, ok, fits)
			}
			if !ok && current <= size.MaxTokens {
				t.Fatalf("Check refused a message with %d of %d tokens", current, size.MaxTokens)
			}
		}
		if e := size.Estimate(history + tokens); e > max(size.MaxTokens, size.MaxTokens+size.Reply-size.ReplyRoom()) || e <= size.ReplyRoom()+size.Instructions {
			t.Fatalf("the estimate is %d for a window of %+v", e, size)
		}
	})
}

func TestReplyBytes_Limits_FollowTokensAndMaximum(t *testing.T) {
	for _, test := range []struct{ tokens, maxBytes, want int }{
		{16, 0, 4096}, {1024, 0, 256 << 10}, {MaxReplyRoom, 0, 1 << 20}, {2 * MaxReplyRoom, 0, 1 << 20},
		{16, 64 << 10, 4096}, {1024, 64 << 10, 64 << 10},
		{1024, 16 << 20, 4 << 20}, {MaxReplyRoom, 16 << 20, 16 << 20},
	} {
		if got := ReplyBytes(test.tokens, test.maxBytes); got != test.want {
			t.Errorf("%d tokens, at most %d bytes: got %d bytes, want %d", test.tokens, test.maxBytes, got, test.want)
		}
	}
}
