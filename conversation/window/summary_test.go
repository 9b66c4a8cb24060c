package window

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// summarise returns the input after a caller has summarised batches: the summary covers the batches and has a random
// size.
func summarise(t *rapid.T, in Input, batches []Batch) Input {
	last := batches[len(batches)-1].To
	in.Summary = Summary{
		Tokens: rapid.IntRange(1, in.SummaryLimit()).Draw(t, "new summary"), Last: in.History[last-1].ID, Count: in.Earlier + last,
	}
	return in
}

// checkBatches checks that batches adjoin, consist of whole exchanges and are not too large.
func checkBatches(t *rapid.T, in Input, batches []Batch) {
	if len(batches) > 0 && (!in.Compression || in.SummaryLimit() == 0) {
		t.Fatal("batches are returned though summaries are disabled or the window is too small")
	}
	at := newPlanner(in).summarised()
	for _, batch := range batches {
		tokens, exchanges := 0, 0
		for i, m := range in.History[batch.From:batch.To] {
			if !m.Skip {
				tokens += m.Tokens
			}
			if !m.Answers || m.Alone || i == 0 {
				exchanges++
			}
		}
		if batch.From != at || batch.To <= batch.From || batch.Tokens != tokens {
			t.Fatalf("batch %+v takes %d tokens and should begin at %d", batch, tokens, at)
		}
		if at = batch.To; at < len(in.History) && in.History[at].Answers && !in.History[at].Alone {
			t.Fatal("a batch ends within an exchange")
		}
		if tokens > in.SummaryInputLimit() && exchanges > 1 {
			t.Fatalf("a batch of %d exchanges takes %d tokens, at most %d", exchanges, tokens, in.SummaryInputLimit())
		}
	}
}

func TestPlanSummary_SummaryStored_NextTurnNeedsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Compression = true
		in.Summary.Tokens = min(in.Summary.Tokens, in.SummaryLimit())
		batches := PlanSummary(in)
		checkBatches(t, in, batches)
		if len(batches) > 0 {
			in = summarise(t, in, batches)
			if again := PlanSummary(in); again != nil {
				t.Fatalf("after the batches were summarised, the batches %v are due", again)
			}
		}
		in.New.Tokens = rapid.IntRange(1, in.Budget()/5).Draw(t, "next")
		if p := Plan(in); p.SummariseFirst != nil {
			t.Fatalf("a turn must summarise %v first, although %v were summarised after the last reply", p.SummariseFirst, batches)
		}
	})
}

func TestPlan_BatchesSummarised_NextPlanNeedsNone(t *testing.T) {
	some := false
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		p := Plan(in)
		checkBatches(t, in, p.SummariseFirst)
		if len(p.SummariseFirst) == 0 {
			return
		}
		some = true
		if again := Plan(summarise(t, in, p.SummariseFirst)); again.SummariseFirst != nil {
			t.Fatalf("the batches %v were summarised, but the next plan has the batches %v", p.SummariseFirst, again.SummariseFirst)
		}
	})
	if !some {
		t.Error("no input had batches to summarise first")
	}
}

func TestPlanSummary_WindowOver80PercentFull_LeavesHalf(t *testing.T) {
	const maxTokens = 4004 // gives a budget of 3,000 tokens
	conversation := func(tokens int) (in Input) {
		in = Input{Size: Size{MaxTokens: maxTokens}, Compression: true, Policy: FirstInFirstOut}
		for i := range tokens / 50 {
			in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
		}
		return in
	}
	size := Size{MaxTokens: maxTokens}
	if budget, limit := size.Budget(), size.SummaryLimit(); budget != 3000 || limit != 750 {
		t.Fatalf("the budget is %d, and SummaryLimit is %d", budget, limit)
	}
	if batches := PlanSummary(conversation(2400)); batches != nil {
		t.Errorf("at 80 %% the batches are %v", batches)
	}
	batches := PlanSummary(conversation(2500))
	if len(batches) != 1 || batches[0] != (Batch{From: 0, To: 36, Tokens: 1800}) { // 700 tokens stay: with a summary of 750, less than half
		t.Errorf("at 83 %% the batches are %v", batches)
	}
	for _, policy := range []Policy{Priority, Semantic} {
		in := conversation(2500)
		in.Policy = policy
		if batches := PlanSummary(in); len(batches) != 2 || batches[1].To != 50 {
			t.Errorf("%s: the batches are %v", policy, batches)
		}
		in.Summary = Summary{Tokens: 500, Last: "042", Count: 43} // 350 tokens in no summary, below an eighth of 3,000
		if batches := PlanSummary(in); batches != nil {
			t.Errorf("%s: the batches are %v though little is in no summary", policy, batches)
		}
	}
	in := conversation(2500)
	if in.Compression = false; PlanSummary(in) != nil {
		t.Error("batches are returned although compression is disabled")
	}
}

func TestSummaryLimit_QuarterOfBudgetOrZero(t *testing.T) {
	for _, test := range []struct{ maxTokens, limit int }{{64, 0}, {344, 0}, {345, 64}, {4096, 767}, {16384, 1024}, {1_000_000, 1024}} {
		size := Size{MaxTokens: test.maxTokens}
		if got := size.SummaryLimit(); got != test.limit {
			t.Errorf("SummaryLimit is %d for a window of %d, want %d", got, test.maxTokens, test.limit)
		}
		if limit := size.SummaryInputLimit(); test.limit > 0 && (limit < 64 || limit > longestInput) {
			t.Errorf("for a window of %d tokens SummaryInputLimit is %d", test.maxTokens, limit)
		}
	}
}

// The new message alone takes more than half of the budget.
func TestPlan_LargeNewMessage_HistorySummarisedFirst(t *testing.T) {
	in := Input{Size: Size{MaxTokens: 4004}, Compression: true, Policy: FirstInFirstOut, New: Message{ID: "new", Tokens: 2000}}
	for i := range 40 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
	}
	p := Plan(in)
	// The budget is 3,000 tokens: 2,000 for the new message, 750 for a summary, and 250 for two exchanges.
	if len(p.SummariseFirst) != 1 || p.SummariseFirst[0].To != 36 {
		t.Fatalf("the batches to summarise first are %v", p.SummariseFirst)
	}
	in.Summary = Summary{Tokens: 750, Last: "035", Count: 36}
	if p := Plan(in); p.SummariseFirst != nil || p.Dropped.Count != 0 || p.Summarised.Count != 36 {
		t.Errorf("after the summary, the plan is %+v", p)
	}
}

// The priority and semantic policies may leave out any message. If each left-out message needed a summary first, every
// turn would wait.
func TestPlan_FewMessagesLeftOut_NoSummaryFirst(t *testing.T) {
	in := Input{Size: Size{MaxTokens: 4004}, Compression: true, Policy: Semantic, New: Message{ID: "new", Tokens: 50}}
	for i := range 100 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1, Similarity: float64(100 - i)})
	}
	for _, test := range []struct {
		last  string
		count int
		due   bool
	}{{"091", 92, false}, {"089", 90, true}} { // the newest exchange is kept; at most 375 tokens (7 messages) may be dropped, an eighth of 3,000
		in.Summary = Summary{Tokens: 500, Last: test.last, Count: test.count}
		p := Plan(in)
		if due := p.SummariseFirst != nil; p.Dropped.Count != 100-test.count-2 || due != test.due {
			t.Errorf("%d messages are dropped, and the batches to summarise first are %v", p.Dropped.Count, p.SummariseFirst)
		}
	}
}

func TestPlanSummary_ExchangeHalfCovered_StartsAtReply(t *testing.T) {
	in := Input{Size: Size{MaxTokens: 4004}, Compression: true, Policy: Semantic, Summary: Summary{Tokens: 500, Last: "040", Count: 41}}
	for i := range 60 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i), Tokens: 50, Answers: i%2 == 1})
	}
	if batches := PlanSummary(in); len(batches) != 1 || batches[0] != (Batch{From: 41, To: 60, Tokens: 950}) {
		t.Errorf("the batches are %v, but the summary covers 41 messages", batches)
	}
}

// A summary of messages before History is always sent, so its tokens count in the fill level.
func TestPlanSummary_MessagesBeforeHistory_SummaryTokensCount(t *testing.T) {
	in := Input{
		Size: Size{MaxTokens: 4004}, Compression: true, Policy: Priority, Earlier: 1, EarlierTokens: 100,
		Summary: Summary{Tokens: 700, Last: "000", Count: 1},
	}
	for i := range 40 {
		in.History = append(in.History, Message{ID: fmt.Sprintf("%03d", i+1), Tokens: 50, Answers: i%2 == 1})
	}
	if batches := PlanSummary(in); batches == nil {
		t.Error("messages and summary take 2,700 tokens, over 80 % of 3,000, but no batches are returned")
	}
}
