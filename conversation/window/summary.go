package window

import "sort"

const (
	// longestSummary and shortestSummary bound SummaryLimit, in tokens. The model takes too long to write a longer
	// summary, and a shorter summary has too little content.
	longestSummary, shortestSummary = 1024, 64
	// longestInput bounds the tokens of the messages that one call summarises. Summaries of longer prompts are slow and
	// superficial.
	longestInput = 16_384
	// SummaryPromptOverhead is the maximum number of tokens of the instruction in the prompt for a summary, with the
	// message overhead.
	SummaryPromptOverhead = 128
)

// SummaryLimit returns the maximum number of tokens of a summary, with MessageOverhead: a quarter of the budget, at
// most 1,024. It is 0 for windows below 345 tokens: their summaries would have too little content, so messages are
// dropped instead.
func (z Size) SummaryLimit() int {
	limit := min(z.Budget()/4, longestSummary)
	if limit < shortestSummary {
		return 0
	}
	return limit
}

// SummaryInputLimit returns the maximum number of tokens of the messages that one call summarises, with their overhead:
// at most 16,384. With the old summary, the instruction (SummaryPromptOverhead) and the new summary, they fit into the
// session's window.
func (z Size) SummaryInputLimit() int {
	return min(z.MaxTokens-2*z.SummaryLimit()-SummaryPromptOverhead-PromptOverhead, longestInput)
}

// Batch is a range of messages that one call to the model adds to the summary: History[From:To]. The call leaves out
// messages that are never sent. A batch consists of whole exchanges, but may begin with a reply if the summary ends
// with the message before that reply. If Tokens exceeds [Size.SummaryInputLimit], the batch is a single exchange, and its
// text must be cut. After the call, Summary.Last is the id of History[To-1], and Summary.Count has grown by To-From.
type Batch struct {
	From, To int
	Tokens   int
}

// PlanSummary returns the batches to summarise after a reply, oldest first. It returns none unless the reply left the
// window over 80 % full. The history must end with the reply; New is ignored.
//
//   - fifo: The fill level counts the summary, the messages that it does not cover, and all system messages, because these stay
//     in the prompt. The oldest messages are summarised until all of that, with a summary of the maximum size, takes at most half
//     of the budget.
//   - priority and semantic: These policies may leave out any message. The fill level counts the whole history.
//     Everything is summarised when the messages in no summary take more than an eighth of the budget. So not every
//     reply costs a call.
//
// Summarised messages may still be sent word for word. If messages before the history are in no summary, PlanSummary
// returns none: the caller must read the history from Summary.Last on.
func PlanSummary(in Input) []Batch {
	in.New = Message{}
	p := newPlanner(in)
	p.tallyEarlier()
	budget, pending := p.Budget(), p.pending()
	full, due := p.Summary.Tokens+pending+p.systemCovered(), true
	if p.ranked() {
		full, due = p.tokens, pending > p.slack()
		if p.EarlierTokens > 0 {
			full += p.Summary.Tokens // the summary is always sent, for the messages before History
		}
	}
	if 5*full <= 4*budget || !due {
		return nil
	}
	p.group()
	return p.batches()
}

// summariseFirst returns the batches to summarise before the model is called. It returns none unless the plan drops
// more tokens than slack. After these batches are summarised, a new plan needs no further batch.
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

// slack returns the maximum number of unsummarised tokens that a plan may drop without a summary first.
func (p *planner) slack() int {
	if p.ranked() {
		return p.Budget() / 8
	}
	return 0
}

// unsummarised returns the maximum number of tokens of the newest messages that stay out of the summary, beside the system messages.
func (p *planner) unsummarised() int {
	if p.ranked() {
		return 0
	}
	budget := p.Budget()
	return max(min(budget/2, budget-p.New.Tokens)-p.system-p.SummaryLimit(), 0)
}

// summarised returns the number of messages of History that the summary covers.
func (p *planner) summarised() int {
	return sort.Search(len(p.History), func(i int) bool { return !p.Summary.covers(p.History[i]) })
}

// pending returns the number of tokens of the messages that are in no summary.
func (p *planner) pending() int {
	n := 0
	for _, m := range p.History[p.summarised():] {
		if !m.Skip {
			n += m.Tokens
		}
	}
	return n
}

// systemCovered returns the number of tokens of the system messages, with their replies, that the summary covers.
func (p *planner) systemCovered() (n int) {
	system := false
	for _, m := range p.History[:p.summarised()] {
		if !m.Answers || m.Alone {
			system = m.System
		}
		if system && !m.Skip {
			n += m.Tokens
		}
	}
	return n
}

// batches returns batches of the exchanges that are in no summary, oldest first. It leaves out the newest exchanges, up
// to the number of tokens that unsummarised returns.
func (p *planner) batches() (batches []Batch) {
	if !p.Compression || p.EarlierUnsummarised || p.SummaryLimit() == 0 {
		return nil
	}
	start, pending, rest := p.summarised(), p.pending(), p.unsummarised()
	apart := rest > 0 // all system messages fit beside the newest messages
	if apart {
		pending -= p.system - p.systemCovered()
	}
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
		if !apart || !x.system {
			pending -= tokens
		}
		if n := len(batches); n > 0 && batches[n-1].Tokens+tokens <= p.SummaryInputLimit() {
			batches[n-1].To = x.to
			batches[n-1].Tokens += tokens
			continue
		}
		batches = append(batches, Batch{x.from, x.to, tokens})
	}
	return batches
}
