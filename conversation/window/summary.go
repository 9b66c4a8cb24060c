package window

import "sort"

const (
	// longestSummary and shortestSummary bound SummaryLimit: the model takes too long to write a longer one, and a
	// shorter one says nothing.
	longestSummary, shortestSummary = 1024, 64
	// longestInput bounds the messages of one call: a longer prompt makes a slow and superficial summary.
	longestInput = 16_384
	// SummaryPromptOverhead is what the prompt for a summary may take besides the old summary and the messages: the
	// instruction.
	SummaryPromptOverhead = 128
)

// SummaryLimit returns how many tokens a summary may take, with MessageOverhead: a quarter of the budget, at most
// 1,024. It is 0 for windows below 345 tokens, in which a summary would say nothing: there messages are dropped
// instead.
func SummaryLimit(maxTokens int) int {
	limit := min(Budget(maxTokens)/4, longestSummary)
	if limit < shortestSummary {
		return 0
	}
	return limit
}

// SummaryInputLimit returns how many tokens of messages, with their overhead, one call summarises: at most 16,384.
// With the old summary, the instruction (SummaryPromptOverhead) and the new summary they fit the session's window.
func SummaryInputLimit(maxTokens int) int {
	return min(maxTokens-2*SummaryLimit(maxTokens)-SummaryPromptOverhead-PromptOverhead, longestInput)
}

// Batch is what one call to the model adds to the summary: the messages History[From:To] but for those that are never
// sent. It consists of whole exchanges. If Tokens exceed [SummaryInputLimit], it is a single exchange whose text must
// be cut. Afterwards Summary.Last is the id of History[To-1], and Summary.Count has grown by To-From.
type Batch struct {
	From, To int
	Tokens   int
}

// PlanSummary returns what to summarise after a reply, oldest batch first. It returns nothing unless the reply left
// the window over 80 % full. The history ends with the reply, and New is ignored.
//
//   - fifo: "full" counts the summary instead of the messages in it. The oldest messages are summarised until the
//     rest, with a summary of any size, takes at most half of the budget.
//   - priority and semantic may leave out any message. "Full" counts the whole history. Everything is summarised once
//     the messages that are in no summary take more than an eighth of the budget, so that not every reply costs a
//     call.
//
// Summarised messages may still be sent word for word. Nothing is returned if messages before the history are in no
// summary: the caller must list the history from Summary.Last on.
func PlanSummary(in Input) []Batch {
	in.New = Message{}
	p := newPlanner(in)
	p.tallyEarlier()
	budget, pending := Budget(p.MaxTokens), p.pending()
	_, ranked := orders[p.Policy]
	full, due := p.Summary.Tokens+pending, true
	if ranked {
		full, due = p.tokens, pending > p.slack()
		if p.EarlierTokens > 0 {
			full += p.Summary.Tokens // it is sent in any case, for the messages that are not listed
		}
	}
	if 5*full <= 4*budget || !due {
		return nil
	}
	return p.batches()
}

// summariseFirst returns what to summarise before the model is called: nothing, unless the plan drops more than
// slack. After that a new plan has nothing to summarise first.
func (p *planner) summariseFirst() []Batch {
	if p.Overflow > 0 {
		return nil
	}
	lost := 0
	for i, d := range p.Decisions {
		if d == (Decision{Dropped, NoRoom}) {
			lost += p.History[i].Tokens
		}
	}
	if lost <= p.slack() {
		return nil
	}
	return p.batches()
}

// slack returns how many tokens may be in no summary although the policy could leave them out.
func (p *planner) slack() int {
	if _, ranked := orders[p.Policy]; ranked {
		return Budget(p.MaxTokens) / 8
	}
	return 0
}

// unsummarised returns how many tokens of the newest messages stay out of the summary.
func (p *planner) unsummarised() int {
	if _, ranked := orders[p.Policy]; ranked {
		return 0
	}
	budget := Budget(p.MaxTokens)
	return max(min(budget/2, budget-p.New.Tokens)-SummaryLimit(p.MaxTokens), 0)
}

// summarised returns how many messages of the history are in the summary.
func (p *planner) summarised() int {
	return sort.Search(len(p.History), func(i int) bool { return !p.Summary.covers(p.History[i]) })
}

// pending returns what the messages take that are in no summary.
func (p *planner) pending() int {
	n := 0
	for _, m := range p.History[p.summarised():] {
		if !m.Skip {
			n += m.Tokens
		}
	}
	return n
}

// batches returns the oldest exchanges that are in no summary, except those that stay out of it.
func (p *planner) batches() (batches []Batch) {
	if !p.Compression || p.EarlierUnsummarised || SummaryLimit(p.MaxTokens) == 0 {
		return nil
	}
	start, pending, rest := p.summarised(), p.pending(), p.unsummarised()
	for _, x := range p.exchanges {
		if x.to <= start {
			continue
		}
		if pending <= rest {
			break
		}
		tokens := 0
		x.from = max(x.from, start)
		for _, m := range p.History[x.from:x.to] {
			if !m.Skip {
				tokens += m.Tokens
			}
		}
		pending -= tokens
		if n := len(batches); n > 0 && batches[n-1].Tokens+tokens <= SummaryInputLimit(p.MaxTokens) {
			batches[n-1].To = x.to
			batches[n-1].Tokens += tokens
			continue
		}
		batches = append(batches, Batch{x.from, x.to, tokens})
	}
	return batches
}
