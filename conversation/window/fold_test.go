package window

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// fold does what the caller does with pieces: the summary then covers them, and takes any size.
func fold(t *rapid.T, in Input, pieces []Batch) Input {
	last := pieces[len(pieces)-1].To
	in.Summary = Summary{
		Tokens: rapid.IntRange(1, SummaryLimit(in.MaxTokens)).Draw(t, "new summary"), Last: in.History[last-1].ID, Count: in.Earlier + last,
	}
	return in
}

func piecesAreBoundedAndWhole(t *rapid.T, in Input, pieces []Batch) {
	if len(pieces) > 0 && (!in.Compression || SummaryLimit(in.MaxTokens) == 0) {
		t.Fatal("something is folded where nothing may be")
	}
	at := newPlanner(in).folded()
	for _, piece := range pieces {
		tokens, exchanges := 0, 0
		for i, m := range in.History[piece.From:piece.To] {
			if !m.Skip {
				tokens += m.Tokens
			}
			if !m.Answers || i == 0 {
				exchanges++
			}
		}
		if piece.From != at || piece.To <= piece.From || piece.Tokens != tokens {
			t.Fatalf("piece %+v takes %d tokens and should begin at %d", piece, tokens, at)
		}
		if at = piece.To; at < len(in.History) && in.History[at].Answers {
			t.Fatal("a piece ends within an exchange")
		}
		if tokens > SummaryInputLimit(in.MaxTokens) && exchanges > 1 {
			t.Fatalf("a piece of %d exchanges takes %d tokens, at most %d", exchanges, tokens, SummaryInputLimit(in.MaxTokens))
		}
	}
}

func TestWhatWasFoldedBehindAReplyIsDoneForTheNextTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Compression = true
		in.Summary.Tokens = min(in.Summary.Tokens, SummaryLimit(in.MaxTokens))
		pieces := PlanSummary(in)
		piecesAreBoundedAndWhole(t, in, pieces)
		if len(pieces) > 0 {
			in = fold(t, in, pieces)
			if again := PlanSummary(in); again != nil {
				t.Fatalf("folded, and yet %v are to be folded", again)
			}
		}
		in.New.Tokens = rapid.IntRange(1, Budget(in.MaxTokens)/5).Draw(t, "next")
		if p := Plan(in); p.SummariseFirst != nil {
			t.Fatalf("a fold is in front of a turn, %v, behind which %v were folded", p.SummariseFirst, pieces)
		}
	})
}

func TestWhatIsOverdueIsFoldedOnce(t *testing.T) {
	some := false
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		p := Plan(in)
		piecesAreBoundedAndWhole(t, in, p.SummariseFirst)
		if len(p.SummariseFirst) == 0 {
			return
		}
		some = true
		if again := Plan(fold(t, in, p.SummariseFirst)); again.SummariseFirst != nil {
			t.Fatalf("%v were folded, and yet %v are overdue", p.SummariseFirst, again.SummariseFirst)
		}
	})
	if !some {
		t.Error("nothing was ever overdue")
	}
}

func TestFoldingBeginsOver80PercentAndLeavesHalf(t *testing.T) {
	const maxTokens = 4004 // a budget of 3,000
	conversation := func(tokens int) (in Input) {
		in = Input{MaxTokens: maxTokens, Compression: true, Policy: FirstInFirstOut}
		for i := range tokens / 50 {
			in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
		}
		return in
	}
	if budget, limit := Budget(maxTokens), SummaryLimit(maxTokens); budget != 3000 || limit != 750 {
		t.Fatalf("a budget of %d, a summary of %d", budget, limit)
	}
	if pieces := PlanSummary(conversation(2400)); pieces != nil {
		t.Errorf("at 80 %% %v are folded", pieces)
	}
	pieces := PlanSummary(conversation(2500))
	if len(pieces) != 1 || pieces[0] != (Batch{From: 0, To: 36, Tokens: 1800}) { // 700 stay, with a summary of 750 below half
		t.Errorf("at 83 %% %v are folded", pieces)
	}
	for _, policy := range []Policy{Priority, Semantic} {
		in := conversation(2500)
		in.Policy = policy
		if pieces := PlanSummary(in); len(pieces) != 2 || pieces[1].To != 50 {
			t.Errorf("%s: %v are folded", policy, pieces)
		}
		in.Summary = Summary{Tokens: 500, Last: "042", Count: 43} // 350 in none, below an eighth
		if pieces := PlanSummary(in); pieces != nil {
			t.Errorf("%s: %v are folded though little is new", policy, pieces)
		}
	}
	in := conversation(2500)
	if in.Compression = false; PlanSummary(in) != nil {
		t.Error("something is folded without compression")
	}
}

func TestASummaryIsAQuarterOrNothing(t *testing.T) {
	for _, test := range []struct{ maxTokens, limit int }{{64, 0}, {344, 0}, {345, 64}, {4096, 767}, {16384, 1024}, {1_000_000, 1024}} {
		if got := SummaryLimit(test.maxTokens); got != test.limit {
			t.Errorf("a summary takes %d tokens of %d, want %d", got, test.maxTokens, test.limit)
		}
		if limit := SummaryInputLimit(test.maxTokens); test.limit > 0 && (limit < 64 || limit > longestPiece) {
			t.Errorf("of %d tokens a fold takes %d", test.maxTokens, limit)
		}
	}
}

// TestALargeMessageFoldsWhatIsInItsWay: the message itself leaves less than half of the budget.
func TestALargeMessageFoldsWhatIsInItsWay(t *testing.T) {
	in := Input{MaxTokens: 4004, Compression: true, Policy: FirstInFirstOut, New: Message{ID: "new", Tokens: 2000}}
	for i := range 40 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
	}
	p := Plan(in)
	if len(p.SummariseFirst) != 1 || p.SummariseFirst[0].To != 36 { // beside 2,000 and a summary of 750 stay 250: two exchanges
		t.Fatalf("overdue: %v", p.SummariseFirst)
	}
	in.Summary = Summary{Tokens: 750, Last: "035", Count: 36}
	if p := Plan(in); p.SummariseFirst != nil || p.Dropped.Count != 0 || p.Summarised.Count != 36 {
		t.Errorf("%+v", p)
	}
}

// TestALittleMayBeLeftOutUnfolded by the policies that may leave out any message, so that not every turn waits for a fold.
func TestALittleMayBeLeftOutUnfolded(t *testing.T) {
	in := Input{MaxTokens: 4004, Compression: true, Policy: Semantic, New: Message{ID: "new", Tokens: 50}}
	for i := range 100 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1, Similarity: float64(100 - i)})
	}
	for _, test := range []struct {
		last  string
		count int
		due   bool
	}{{"091", 92, false}, {"089", 90, true}} { // the newest exchange stays; of a budget of 3,000 an eighth may be lost, 7 messages
		in.Summary = Summary{Tokens: 500, Last: test.last, Count: test.count}
		p := Plan(in)
		if due := p.SummariseFirst != nil; p.Dropped.Count != 100-test.count-2 || due != test.due {
			t.Errorf("%d messages are dropped, overdue: %v", p.Dropped.Count, p.SummariseFirst)
		}
	}
}

func TestFoldingGoesOnWithinAnExchange(t *testing.T) {
	in := Input{MaxTokens: 4004, Compression: true, Policy: Semantic, Summary: Summary{Tokens: 500, Last: "040", Count: 41}}
	for i := range 60 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
	}
	if pieces := PlanSummary(in); len(pieces) != 1 || pieces[0] != (Batch{From: 41, To: 60, Tokens: 950}) {
		t.Errorf("%v are folded, where 41 messages were", pieces)
	}
}

// TestASummaryThatIsSentInAnyCaseCounts: for messages that are not listed it is.
func TestASummaryThatIsSentInAnyCaseCounts(t *testing.T) {
	in := Input{
		MaxTokens: 4004, Compression: true, Policy: Priority, Earlier: 1, EarlierTokens: 100,
		Summary: Summary{Tokens: 700, Last: "000", Count: 1},
	}
	for i := range 40 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i+1), Tokens: 50, Answers: i%2 == 1})
	}
	if pieces := PlanSummary(in); pieces == nil {
		t.Error("2,000 tokens of messages and 700 of a summary are no more than 2,400")
	}
}
