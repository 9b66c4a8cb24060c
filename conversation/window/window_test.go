package window

import (
	"testing"

	"pgregory.net/rapid"
)

func TestReplyRoom_PlusBudgetAndOverhead_IsMaxTokens(t *testing.T) {
	for _, test := range []struct{ maxTokens, room int }{{64, 16}, {4096, 1024}, {16384, 4096}, {1_000_000, 4096}} {
		if got := ReplyRoom(test.maxTokens); got != test.room {
			t.Errorf("the reply room of a window of %d tokens is %d, want %d", test.maxTokens, got, test.room)
		}
		if sum := ReplyRoom(test.maxTokens) + Budget(test.maxTokens) + PromptOverhead; sum != test.maxTokens {
			t.Errorf("reply room, budget and overhead sum to %d of %d", sum, test.maxTokens)
		}
	}
}

func TestCheck_AnySizes_OKOnlyIfPromptFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxTokens := rapid.IntRange(64, 10_000).Draw(t, "maxTokens")
		history := rapid.IntRange(0, 20_000).Draw(t, "history")
		tokens := rapid.IntRange(1, 12_000).Draw(t, "tokens")
		for _, compression := range []bool{false, true} {
			current, ok := Check(maxTokens, compression, history, tokens)
			needed := tokens
			if !compression {
				needed += history
			}
			if fits := needed+PromptOverhead+ReplyRoom(maxTokens) <= maxTokens; ok != fits {
				t.Fatalf("compression %v: Check returned %v, but the prompt fits: %v", compression, ok, fits)
			}
			if !ok && current <= maxTokens {
				t.Fatalf("Check refused a message with %d of %d tokens", current, maxTokens)
			}
		}
		if e := Estimate(maxTokens, history, tokens); e > maxTokens || e <= ReplyRoom(maxTokens) {
			t.Fatalf("the estimate is %d for a window of %d tokens", e, maxTokens)
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
