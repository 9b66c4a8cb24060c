package window

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// anyInput draws a conversation, a window and a new message.
func anyInput(t *rapid.T) Input {
	in := Input{
		Size:        anySize(t),
		Compression: rapid.IntRange(0, 5).Draw(t, "compression") > 0,
		Policy:      rapid.SampledFrom([]Policy{FirstInFirstOut, Priority, Semantic, ""}).Draw(t, "policy"),
	}
	largest := rapid.SampledFrom([]int{20, 200, 1500}).Draw(t, "largest")
	add := func(m Message) {
		m.ID, m.Tokens = fmt.Sprintf("msg_%04d", len(in.History)), rapid.IntRange(1, largest).Draw(t, "tokens")
		in.History = append(in.History, m)
	}
	if in.Compression && rapid.IntRange(0, 3).Draw(t, "earlier") == 0 {
		in.Earlier = rapid.IntRange(1, 50).Draw(t, "earlier messages")
		in.EarlierTokens = rapid.IntRange(0, 2000).Draw(t, "earlier tokens")
		for range rapid.IntRange(0, 2).Draw(t, "old system messages") {
			add(Message{System: true})
		}
		if rapid.Bool().Draw(t, "noQuestion") {
			add(Message{Answers: true, Alone: true})
		}
	}
	for range rapid.IntRange(0, 30).Draw(t, "exchanges") {
		add(Message{
			System:     rapid.IntRange(0, 7).Draw(t, "system") == 0,
			Priority:   rapid.SampledFrom([]float64{0, 0, 0, High, Low, 2.5}).Draw(t, "priority"),
			Similarity: rapid.SampledFrom([]float64{0, 0.2, 0.2, 0.9, -0.1}).Draw(t, "similarity"),
		})
		if kind := rapid.IntRange(0, 9).Draw(t, "answer"); kind > 0 {
			add(Message{Answers: true, Skip: kind == 1})
		}
	}
	in.New = Message{ID: "new", Tokens: rapid.IntRange(1, in.Budget()*11/10).Draw(t, "new")}
	if in.Compression && rapid.Bool().Draw(t, "summary") {
		in.Summary = anySummary(t, in)
	}
	return in
}

// anySummary draws a summary that ends with an exchange.
func anySummary(t *rapid.T, in Input) Summary {
	tokens := rapid.IntRange(1, max(1, in.SummaryLimit()*11/10)).Draw(t, "summary's tokens")
	n := rapid.IntRange(0, len(in.History)).Draw(t, "summarised")
	for n < len(in.History) && n > 0 && in.History[n].Answers && !in.History[n].Alone {
		n++
	}
	if n == 0 {
		if in.Earlier == 0 {
			return Summary{}
		}
		return Summary{Tokens: tokens, Last: "msg_", Count: rapid.IntRange(1, in.Earlier).Draw(t, "summarised earlier")}
	}
	return Summary{Tokens: tokens, Last: in.History[n-1].ID, Count: in.Earlier + n}
}

func TestPlan_AnyInput_WholeExchangesWithinBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		p := Plan(in)
		if again := Plan(in); !gocmp.Equal(p, again) {
			t.Fatal("the same conversation has two plans: " + gocmp.Diff(p, again))
		}
		checkEachMessageDecidedOnce(t, in, p)
		checkExchangesWholeAndInOrder(t, in, p)
		if current, ok := in.Check(in.Compression, newPlanner(in).tokens, in.New.Tokens); !ok {
			if p.Overflow != current || p.Send != nil || p.Kept.Count != 0 {
				t.Fatalf("the window cannot hold the message, but the plan is %+v", p)
			}
			return
		}
		checkWithinBudget(t, in, p)
		if p.Overflow != 0 || p.Kept.Last != "new" {
			t.Fatal("the new message is not in the plan")
		}
		if !in.Compression && p.Dropped.Count+p.Summarised.Count > 0 {
			t.Fatal("a message was left out without compression")
		}
		checkBestChosen(t, in, p)
	})
}

func checkEachMessageDecidedOnce(t *rapid.T, in Input, p Result) {
	if len(p.Decisions) != len(in.History) {
		t.Fatalf("%d decisions about %d messages", len(p.Decisions), len(in.History))
	}
	all := in.Earlier + len(in.History)
	if p.Overflow == 0 {
		all++ // the new message
	}
	if sum := p.Kept.Count + p.Summarised.Count + p.Dropped.Count + p.Skipped.Count; sum != all {
		t.Fatalf("%d of %d messages are counted", sum, all)
	}
	counted := make(map[Verdict]int)
	for i, m := range in.History {
		d := p.Decisions[i]
		counted[d.Verdict]++
		if d.Verdict.String() == "undecided" || d.Reason.String() == "undecided" || d.Reason.String() == "" {
			t.Fatalf("message %d is %v, with the reason %v", i, d.Verdict, d.Reason)
		}
		covered := in.Summary.Last != "" && m.ID <= in.Summary.Last
		if m.Skip != (d.Verdict == Skipped) || d.Verdict == Summarised && !(covered && p.SendSummary) ||
			d.Verdict == Dropped && covered && p.SendSummary {
			t.Fatalf("message %d is %v", i, d.Verdict)
		}
	}
	earlier := p.Kept.Count + p.Summarised.Count + p.Dropped.Count + p.Skipped.Count - all + in.Earlier
	if n := p.Summarised.Count + p.Dropped.Count + p.Skipped.Count - counted[Summarised] - counted[Dropped] - counted[Skipped]; n != earlier {
		t.Fatalf("%d of %d earlier messages are counted", n, earlier)
	}
}

func checkExchangesWholeAndInOrder(t *rapid.T, in Input, p Result) {
	var kept []int
	for i, m := range in.History {
		if p.Decisions[i].Verdict == Kept {
			kept = append(kept, i)
		}
		if m.Answers && i > 0 && !m.Alone && !m.Skip && (p.Decisions[i].Verdict == Kept) != (p.Decisions[i-1].Verdict == Kept) {
			t.Fatalf("message %d is %v and its reply %v", i-1, p.Decisions[i-1].Verdict, p.Decisions[i].Verdict)
		}
		if m.Alone && in.EarlierTokens > 0 && p.Decisions[i].Verdict == Kept {
			t.Fatal("a reply is kept without its message")
		}
	}
	if !slices.Equal(kept, p.Send) {
		t.Fatalf("%v are kept and %v sent", kept, p.Send)
	}
	for i, m := range in.History {
		before := slices.Contains(p.Send[:p.SummaryAt], i)
		leading := in.Earlier == 0 && !slices.ContainsFunc(in.History[:i+1], func(m Message) bool { return !m.System && !m.Answers })
		if before != (leading && p.Decisions[i].Verdict == Kept && p.Overflow == 0) {
			t.Fatalf("message %d is sent before the summary: %v (a system message: %v)", i, before, m.System)
		}
	}
}

func checkWithinBudget(t *rapid.T, in Input, p Result) {
	tokens := PromptOverhead + in.Instructions + in.New.Tokens
	for _, i := range p.Send {
		tokens += in.History[i].Tokens
	}
	if p.SendSummary {
		tokens += in.Summary.Tokens
		if in.Summary.Last == "" || in.Summary.Tokens > in.SummaryLimit() {
			t.Fatal("a summary is sent that does not exist or is too large")
		}
	}
	if tokens != p.PromptTokens || tokens+in.ReplyRoom() > in.MaxTokens {
		t.Fatalf("%d tokens are sent, the plan says %d, in a window of %d", tokens, p.PromptTokens, in.MaxTokens)
	}
}

// checkBestChosen computes the choice of the policy again, in quadratic time. An exchange may be left out only if it
// does not fit together with the kept exchanges that precede it in the policy's order.
func checkBestChosen(t *rapid.T, in Input, p Result) {
	again := newPlanner(in)
	again.group()
	exchanges := again.exchanges
	total := in.EarlierTokens
	for _, x := range exchanges {
		total += x.tokens
	}
	left := in.Budget() - in.New.Tokens
	if fits := total <= left && in.EarlierTokens == 0; fits {
		if p.Summarised.Count+p.Dropped.Count > 0 || p.SendSummary {
			t.Fatal("everything fits, but not everything is sent")
		}
		return
	}
	if p.SendSummary {
		left -= in.Summary.Tokens
	}
	isKept := func(x exchange) bool {
		return slices.ContainsFunc(p.Send, func(i int) bool { return x.from <= i && i < x.to })
	}
	before := func(a, b exchange) bool {
		rank := func(x exchange) [3]float64 {
			system, newest := 0.0, 0.0
			if x.system {
				system = 1
			}
			if x.newest {
				newest = 1
			}
			switch in.Policy {
			case Priority:
				return [3]float64{system, x.priority}
			case Semantic:
				return [3]float64{system, newest, math.Max(0, x.similarity)}
			}
			return [3]float64{system}
		}
		first, second := rank(a), rank(b)
		if c := cmp.Or(cmp.Compare(first[0], second[0]), cmp.Compare(first[1], second[1]), cmp.Compare(first[2], second[2])); c != 0 {
			return c > 0
		}
		return a.from > b.from
	}
	for _, x := range exchanges {
		room, gap := left, false
		for _, y := range exchanges {
			if before(y, x) && isKept(y) {
				room -= y.tokens
			}
			gap = gap || before(y, x) && !isKept(y) && y.tokens > 0 && !y.system && !x.system
		}
		fits := x.tokens <= room && !x.noQuestion && (in.Policy == Priority || in.Policy == Semantic || !gap)
		if x.tokens > 0 && isKept(x) != fits {
			t.Fatalf("%s: the exchange of %d tokens at %d is kept: %v; room %d", in.Policy, x.tokens, x.from, isKept(x), room)
		}
	}
}

func TestPlan_FIFOInLargerWindow_KeepsAtLeastAsMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := anyInput(t)
		in.Policy = FirstInFirstOut
		for i := range in.History { // a system message that fits only into the larger window takes the room of others
			in.History[i].System = false
		}
		small := Plan(in)
		in.MaxTokens += rapid.IntRange(0, 2000).Draw(t, "more")
		large := Plan(in)
		if small.SendSummary != large.SendSummary && large.Dropped.Count+large.Summarised.Count > 0 {
			return // only one window has room for the summary, so it has less room for messages
		}
		for _, i := range small.Send {
			if !slices.Contains(large.Send, i) {
				t.Fatalf("message %d is kept only in the smaller window", i)
			}
		}
	})
}

func TestPlan_EachPolicy_KeepsPreferredMessages(t *testing.T) {
	// The history has five exchanges of 100 tokens each. The window holds three exchanges and the new message.
	history := func(change func(i int, m *Message)) (all []Message) {
		for i := range 10 {
			m := Message{ID: fmt.Sprint(i), Tokens: 50, Answers: i%2 == 1}
			change(i, &m)
			all = append(all, m)
		}
		return all
	}
	mark := func(i int, m *Message) {
		switch i {
		case 0:
			m.System = true
		case 2:
			m.Priority, m.Similarity = High, 0.9
		case 4:
			m.Similarity = 0.5
		case 6:
			m.Priority = Low
		}
	}
	for _, test := range []struct {
		policy  Policy
		send    []int
		reasons []Reason
	}{
		{FirstInFirstOut, []int{0, 1, 6, 7, 8, 9}, []Reason{SystemMessage, NoRoom, NoRoom, Newest, Newest}},
		{"", []int{0, 1, 6, 7, 8, 9}, []Reason{SystemMessage, NoRoom, NoRoom, Newest, Newest}},
		{Priority, []int{0, 1, 2, 3, 8, 9}, []Reason{SystemMessage, Prioritised, NoRoom, NoRoom, Newest}},
		{Semantic, []int{0, 1, 2, 3, 8, 9}, []Reason{SystemMessage, Similar, NoRoom, NoRoom, NewestExchange}},
	} {
		in := Input{Size: Size{MaxTokens: 464}, Compression: true, Policy: test.policy, History: history(mark), New: Message{ID: "new", Tokens: 40}}
		p := Plan(in)
		if !slices.Equal(p.Send, test.send) || p.Dropped.Count != 4 || p.Kept.Count != 7 {
			t.Errorf("policy %q sends %v; the plan is %+v", test.policy, p.Send, p)
		}
		for i, want := range test.reasons {
			if got := p.Decisions[2*i].Reason; got != want {
				t.Errorf("policy %q, exchange %d: the reason is %v, want %v", test.policy, i, got, want)
			}
		}
	}
}

func TestPlan_Summary_SentAfterLeadingSystemMessages(t *testing.T) {
	in := Input{Size: Size{MaxTokens: 464}, Compression: true, Policy: Priority, New: Message{ID: "new", Tokens: 40}}
	for i := range 10 { // messages 0 and 2, at the beginning, and 8, near the end, are system messages; message 0 has a reply
		in.History = append(in.History, Message{ID: fmt.Sprint(i), Tokens: 40, System: i == 0 || i == 2 || i == 8, Answers: i == 1})
	}
	in.Summary = Summary{Tokens: 80, Last: "5", Count: 6}
	p := Plan(in)
	if want := []int{0, 1, 2, 8, 9}; !slices.Equal(p.Send, want) || p.SummaryAt != 3 || !p.SendSummary {
		t.Errorf("the plan sends %v, with the summary at %d", p.Send, p.SummaryAt)
	}
	if p.PromptTokens != PromptOverhead+40+80+5*40 || p.Summarised != (Range{Count: 3, First: "3", Last: "5"}) {
		t.Errorf("the plan is %+v", p)
	}
	in.Summary.Tokens = in.SummaryLimit() + 1
	if p := Plan(in); p.SendSummary || p.Decisions[3] != (Decision{Dropped, NoRoomForSummary}) {
		t.Errorf("a summary that is too large was sent: %+v", p)
	}
}

func TestPlan_MessagesBeforeHistory_Counted(t *testing.T) {
	in := Input{
		Size: Size{MaxTokens: 464}, Compression: true, Earlier: 8, EarlierTokens: 400, New: Message{ID: "new", Tokens: 40},
		History: []Message{{ID: "8", Tokens: 50}, {ID: "9", Tokens: 50, Answers: true}}, Summary: Summary{Tokens: 60, Last: "5", Count: 6},
	}
	p := Plan(in)
	if p.Summarised != (Range{Count: 6, Last: "5"}) || p.Dropped.Count != 2 || !p.EarlierUnsummarised || p.SummariseFirst != nil {
		t.Errorf("the plan is %+v", p)
	}
	if in.Summary = (Summary{Tokens: 60, Last: "7", Count: 8}); Plan(in).EarlierUnsummarised {
		t.Error("EarlierUnsummarised is set, but the summary covers all earlier messages")
	}
	if in.Summary, in.EarlierTokens = (Summary{}), 0; Plan(in).Skipped.Count != 8 {
		t.Error("earlier messages without tokens do not count as skipped")
	}
}

// Plan sorts once. The test counts the comparisons.
func TestPlan_ManyMessages_NLogNComparisons(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, policy := range []Policy{FirstInFirstOut, Priority, Semantic} {
		for n := 1250; n <= 10_000; n *= 2 {
			in := Input{Size: Size{MaxTokens: 200_000}, Compression: true, Policy: policy, New: Message{ID: "~", Tokens: 20}}
			for i := range n {
				in.History = append(in.History, Message{
					ID: fmt.Sprintf("%05d", i), Tokens: 200 + random.IntN(800), Answers: i%2 == 1,
					Priority: float64(random.IntN(3)), Similarity: random.Float64(),
				})
			}
			p := newPlanner(in)
			p.plan()
			exchanges := float64(len(p.exchanges))
			bound := 2 * exchanges * math.Log2(exchanges)
			t.Logf("%-8s %6d messages: %7d comparisons (n log n is %7.0f)", policy, n, p.compared, bound/2)
			if float64(p.compared) > bound {
				t.Errorf("%s: %d messages take %d comparisons", policy, n, p.compared)
			}
			if policy != FirstInFirstOut && p.compared == 0 {
				t.Errorf("%s: the comparisons are not counted", policy)
			}
		}
	}
}

func TestPlan_FitsExactly_SendsAll(t *testing.T) {
	in := Input{
		Size: Size{MaxTokens: 464}, Compression: true, New: Message{ID: "new", Tokens: 45}, Summary: Summary{Tokens: 60, Last: "1", Count: 2},
		History: []Message{
			{ID: "0", Tokens: 50}, {ID: "1", Tokens: 50, Answers: true}, {ID: "2", Tokens: 100}, {ID: "3", Tokens: 100, Answers: true},
		},
	}
	if p := Plan(in); p.PromptTokens+in.ReplyRoom() != 464 || len(p.Send) != 4 || p.SendSummary || p.Decisions[0] != (Decision{Kept, Fits}) {
		t.Errorf("everything fits exactly, but not everything is sent: %+v", p)
	}
	in.New.Tokens++
	if p := Plan(in); len(p.Send) != 2 || !p.SendSummary || p.Summarised.Count != 2 {
		t.Errorf("one token does not fit, but the plan is %+v", p)
	}
}
