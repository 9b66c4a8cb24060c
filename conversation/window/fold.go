package window

import "sort"

const (
	// longestSummary and shortestSummary bound SummaryLimit: a longer one takes the model too long to write, a shorter
	// one says nothing.
	longestSummary, shortestSummary = 1024, 64
	// longestPiece bounds what one call folds.
	longestPiece = 16_384
	// SummaryPromptOverhead is what a fold's prompt may take beyond the old summary and the messages: the instruction.
	SummaryPromptOverhead = 128
)

// SummaryLimit returns how many tokens a summary may take in a window, MessageOverhead included: a quarter of the
// budget, at most 1,024. It is 0 in windows so small (below 345 tokens) that a summary would say nothing: nothing is folded
// there, and what is left out is dropped.
func SummaryLimit(maxTokens int) int {
	limit := min(Budget(maxTokens)/4, longestSummary)
	if limit < shortestSummary {
		return 0
	}
	return limit
}

// SummaryInputLimit returns how many tokens of messages one call to the model folds, their overhead included, at most 16,384: with
// the old summary, the instruction (SummaryPromptOverhead) and the new summary they fit the session's window.
func SummaryInputLimit(maxTokens int) int {
	return min(maxTokens-2*SummaryLimit(maxTokens)-SummaryPromptOverhead-PromptOverhead, longestPiece)
}

// Batch is what one call to the model folds into the summary: the messages History[From:To], those that are never sent left
// out. Its exchanges are whole. If Tokens are more than [SummaryInputLimit] it is a single exchange longer than that,
// whose text must be cut. Once it is folded, Summary.Last is the id of History[To-1], and Summary.Count grows by To-From.
type Batch struct {
	From, To int
	Tokens   int
}

// PlanSummary returns what to fold after a reply, oldest piece first: nothing unless it left the window over 80 % full, so that
// the next turn finds it done. The history ends with the reply, and New is not looked at.
//
//   - fifo: full is measured with the summary in place of what is in it; the oldest are folded until the rest, with a
//     summary of any size, takes at most half of the budget.
//   - priority and semantic, which may leave out any message: full is the whole history, and everything is folded, once
//     what is not in the summary takes more than an eighth of the budget, so that not every reply costs a call.
//
// What is folded may still be sent word for word. Nothing is returned if messages before the history are in no summary:
// list the history from Summary.Last on.
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
			full += p.Summary.Tokens // which is sent however much would fit, for the messages that are not listed
		}
	}
	if 5*full <= 4*budget || !due {
		return nil
	}
	return p.pieces()
}

// overdue returns what to fold before the model is called: nothing, unless the plan drops more than was left unfolded on
// purpose. Once it is folded, a new plan has nothing overdue.
func (p *planner) overdue() []Batch {
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
	return p.pieces()
}

// slack returns how many tokens may be in no summary though the policy could leave them out.
func (p *planner) slack() int {
	if _, ranked := orders[p.Policy]; ranked {
		return Budget(p.MaxTokens) / 8
	}
	return 0
}

// stays returns how many tokens of the newest messages are not folded.
func (p *planner) stays() int {
	if _, ranked := orders[p.Policy]; ranked {
		return 0
	}
	budget := Budget(p.MaxTokens)
	return max(min(budget/2, budget-p.New.Tokens)-SummaryLimit(p.MaxTokens), 0)
}

// folded returns how many messages of the history are in the summary.
func (p *planner) folded() int {
	return sort.Search(len(p.History), func(i int) bool { return !p.Summary.covers(p.History[i]) })
}

// pending returns what the messages take that are in no summary.
func (p *planner) pending() int {
	n := 0
	for _, m := range p.History[p.folded():] {
		if !m.Skip {
			n += m.Tokens
		}
	}
	return n
}

// pieces returns the oldest exchanges that are in no summary, but for those that stay.
func (p *planner) pieces() (pieces []Batch) {
	if !p.Compression || p.EarlierUnsummarised || SummaryLimit(p.MaxTokens) == 0 {
		return nil
	}
	start, pending, stays := p.folded(), p.pending(), p.stays()
	for _, x := range p.exchanges {
		if x.to <= start {
			continue
		}
		if pending <= stays {
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
		if n := len(pieces); n > 0 && pieces[n-1].Tokens+tokens <= SummaryInputLimit(p.MaxTokens) {
			pieces[n-1].To = x.to
			pieces[n-1].Tokens += tokens
			continue
		}
		pieces = append(pieces, Batch{x.from, x.to, tokens})
	}
	return pieces
}
