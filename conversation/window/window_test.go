package window

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTheRoomAndTheBudgetMakeTheWindow(t *testing.T) {
	for _, test := range []struct{ maxTokens, room int }{{64, 16}, {4096, 1024}, {16384, 4096}, {1_000_000, 4096}} {
		if got := Room(test.maxTokens); got != test.room {
			t.Errorf("of %d tokens %d are kept for the reply, want %d", test.maxTokens, got, test.room)
		}
		if sum := Room(test.maxTokens) + Budget(test.maxTokens) + PromptOverhead; sum != test.maxTokens {
			t.Errorf("room, budget and overhead are %d of %d", sum, test.maxTokens)
		}
	}
}

func TestAMessageIsTakenInOrWouldTakeMoreThanTheWindow(t *testing.T) {
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
			if fits := needed+PromptOverhead+Room(maxTokens) <= maxTokens; ok != fits {
				t.Fatalf("compression %v: taken in: %v, fits: %v", compression, ok, fits)
			}
			if !ok && current <= maxTokens {
				t.Fatalf("refused with %d of %d tokens", current, maxTokens)
			}
		}
		if e := Estimate(maxTokens, history, tokens); e > maxTokens || e <= Room(maxTokens) {
			t.Fatalf("a turn is expected to use %d of %d tokens", e, maxTokens)
		}
	})
}

func TestTheNewestStayPairsWholeAndNothingMoreWouldFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxTokens := rapid.IntRange(64, 2000).Draw(t, "maxTokens")
		tokens := rapid.IntRange(1, max(1, Budget(maxTokens))).Draw(t, "tokens")
		var history []Message
		for range rapid.IntRange(0, 30).Draw(t, "exchanges") {
			history = append(history,
				Message{Tokens: rapid.IntRange(1, 200).Draw(t, "asked")},
				Message{Tokens: rapid.IntRange(1, 200).Draw(t, "answered"), Answers: true, Skip: rapid.IntRange(0, 4).Draw(t, "skip") == 0})
		}
		first := FIFO(maxTokens, history, tokens)
		sum := func(from int) int {
			n := tokens
			for _, m := range history[from:] {
				if !m.Skip {
					n += m.Tokens
				}
			}
			return n
		}
		if sum(first) > Budget(maxTokens) {
			t.Fatalf("%d tokens in a budget of %d", sum(first), Budget(maxTokens))
		}
		if first < len(history) && history[first].Answers {
			t.Fatal("an answer stays without its question")
		}
		if first >= 2 && sum(first-2) <= Budget(maxTokens) {
			t.Fatal("one more exchange would fit")
		}
		if again := FIFO(maxTokens, history, tokens); again != first {
			t.Fatal("the same history has two plans")
		}
	})
}
