package window

import (
	"cmp"
	"slices"
)

// Policy chooses the messages that stay word for word if not all messages fit. An unknown policy acts like
// FirstInFirstOut.
type Policy string

// The policies; see [Plan].
const (
	FirstInFirstOut Policy = "fifo"
	Priority        Policy = "priority"
	Semantic        Policy = "semantic"
)

// Message holds the data of a message that Plan needs.
type Message struct {
	ID     string // rises within a session
	Tokens int    // with MessageOverhead
	// System is true if the message's role is system.
	System bool
	// Skip is true if the message is never sent: a reply that failed or has no text.
	Skip bool
	// Answers is true if the message is a reply to the message before it. Plan keeps or leaves out these two messages
	// together.
	Answers bool
	// Alone is true if the message is a reply, and the message to which it replies is not in Input.History.
	Alone bool
	// Priority is the message's priority, from [PriorityOf]. An exchange has the higher priority of its two messages.
	Priority float64
	// Similarity measures how close the message is in meaning to the new message: higher is closer, on any scale; 0 or
	// less means not close or unknown. An exchange has the higher similarity of its two messages.
	Similarity float64
}

// Summary replaces all messages of the session up to Last. The zero value means that the session has no summary.
type Summary struct {
	Tokens int    // with MessageOverhead; a summary above Size.SummaryLimit is not sent
	Last   string // id of the last message that it covers; "" for no summary
	Count  int    // number of messages that it covers, including messages that are never sent
}

// Input holds the data for a plan.
type Input struct {
	Size
	Compression bool
	Policy      Policy
	Summary     Summary
	// History holds the newest messages before New, oldest first. Older system messages may precede them.
	History []Message
	// Earlier is the number of messages that are older than the newest messages and not in History. EarlierTokens is the number
	// of their tokens; 0 means that none of these messages is ever sent. Plan cannot keep these messages. Without compression, it
	// drops them.
	Earlier, EarlierTokens int
	// New is the message that the model replies to.
	New Message
}

// Range counts messages, with the ids of the first and the last. First is "" if the range begins before Input.History.
type Range struct {
	Count       int
	First, Last string
}

func (r *Range) add(id string) {
	if r.Count == 0 {
		r.First = id
	}
	r.Count++
	r.Last = id
}

// Result is the result of Plan.
type Result struct {
	// Overflow is 0 if the window can hold the new message ([Size.Check]). Otherwise nothing is sent, and Overflow is the
	// size of the prompt plus the reply room, which exceeds MaxTokens.
	Overflow int
	// Send holds the indexes of the messages of History that are sent word for word, in order. New follows them.
	Send []int
	// SendSummary is true if the summary is sent: before History[Send[SummaryAt]], or before New if SummaryAt is
	// len(Send). The summary follows the system messages at the beginning of the session and the replies to these
	// messages.
	SendSummary bool
	SummaryAt   int
	// Decisions has one entry for each message of History.
	Decisions []Decision
	// Each message counts in exactly one of these four ranges. New counts in Kept. The Earlier messages count in
	// Summarised, Dropped or Skipped.
	Kept, Summarised, Dropped, Skipped Range
	// PromptTokens is the size of the prompt, including the instructions and PromptOverhead.
	PromptTokens int
	// SummariseFirst holds the batches to summarise before the model is called. [PlanSummary] returns the batches to
	// summarise after a reply.
	SummariseFirst []Batch
	// EarlierUnsummarised is true if messages before History are in no summary. SummariseFirst is then empty. To
	// summarise, the caller must read the history from Summary.Last on.
	EarlierUnsummarised bool
}

// Plan chooses the messages to send. They never take more than [Size.Budget]. Plan sorts at most once, so its time grows as
// n log n with n messages. The same input gives the same plan.
//
// If everything fits, everything is sent word for word and without a summary. If not, the budget goes first to the new
// message, then to the summary if it fits, then to whole exchanges. An exchange is a message and its reply. Every policy begins
// with the exchanges of system messages, the newest first. Then the policy orders the other exchanges:
//
//   - fifo: the newest first, up to the first exchange that does not fit.
//   - priority: by priority, the highest first; then the newest first.
//   - semantic: the newest exchange first; then by similarity, the closest first; then the newest first.
//
// With the last two policies, and among system messages, an exchange that does not fit is left out, and the next one is tried.
func Plan(in Input) Result {
	p := newPlanner(in)
	p.plan()
	return p.Result
}

// exchange is a message, with its reply if the history has one. Plan keeps or leaves out the whole exchange.
type exchange struct {
	from, to   int // indexes in History; to is excluded
	tokens     int
	system     bool
	noQuestion bool // the exchange is a reply alone, without its message; it is never kept
	newest     bool
	priority   float64
	similarity float64
}

// planner is a plan in progress.
type planner struct {
	Input
	Result
	exchanges []exchange
	tokens    int // tokens of the whole history
	system    int // tokens of the system messages in History, and of the replies to them
	left      int // tokens of the budget that are not used yet
	compared  int // number of comparisons in the sort; only a test reads it
}

func newPlanner(in Input) *planner {
	p := &planner{Input: in, tokens: in.EarlierTokens}
	for _, m := range in.History {
		if !m.Skip {
			p.tokens += m.Tokens
		}
	}
	return p
}

// group sets exchanges.
func (p *planner) group() {
	p.exchanges = make([]exchange, 0, len(p.History)/2+1)
	for i, m := range p.History {
		if !m.Answers || i == 0 || m.Alone {
			p.exchanges = append(p.exchanges, exchange{
				from: i, to: i, system: m.System, noQuestion: m.Answers, priority: m.Priority, similarity: m.Similarity,
			})
		}
		x := &p.exchanges[len(p.exchanges)-1]
		x.to++
		x.priority, x.similarity = max(x.priority, m.Priority), max(x.similarity, m.Similarity)
		if !m.Skip {
			x.tokens += m.Tokens
		}
	}
	for i := range p.exchanges {
		if p.exchanges[i].system {
			p.system += p.exchanges[i].tokens
		}
	}
	if n := len(p.exchanges); n > 0 {
		p.exchanges[n-1].newest = true
	}
}

func (p *planner) plan() {
	p.group()
	p.Decisions = make([]Decision, len(p.History))
	p.left = p.Budget() - p.New.Tokens
	current, ok := p.Check(p.Compression, p.tokens, p.New.Tokens)
	switch {
	case !ok:
		p.Overflow = current
	case p.tokens <= p.left && p.EarlierTokens == 0:
		for _, x := range p.exchanges {
			p.keep(x, Fits)
		}
	default:
		if p.Summary.Last != "" && p.Summary.Tokens <= min(p.left, p.SummaryLimit()) {
			p.SendSummary = true
			p.left -= p.Summary.Tokens
		}
		p.choose()
	}
	for i, d := range p.Decisions {
		if d.Verdict != Kept || p.History[i].Skip {
			p.Decisions[i] = p.leftOut(i)
		}
	}
	p.tally()
	p.SummariseFirst = p.summariseFirst()
}

// choose keeps exchanges in the order of the policy until the budget is used up.
func (p *planner) choose() {
	for _, x := range p.order() {
		if x.noQuestion || x.tokens > p.left {
			if !p.ranked() && !x.system {
				return
			}
			continue
		}
		p.left -= x.tokens
		p.keep(*x, reasonFor(p.Policy, *x))
	}
}

// order returns the exchanges in the order in which the policy keeps them.
func (p *planner) order() []*exchange {
	order := make([]*exchange, 0, len(p.exchanges))
	if compare, ranked := orders[p.Policy]; ranked {
		for i := range p.exchanges {
			order = append(order, &p.exchanges[i])
		}
		slices.SortFunc(order, func(a, b *exchange) int { p.compared++; return compare(a, b) })
		return order
	}
	for _, system := range []bool{true, false} {
		for i := len(p.exchanges) - 1; i >= 0; i-- {
			if p.exchanges[i].system == system {
				order = append(order, &p.exchanges[i])
			}
		}
	}
	return order
}

// ranked reports whether the policy may leave out an exchange and keep an older one.
func (p *planner) ranked() bool {
	_, ranked := orders[p.Policy]
	return ranked
}

// orders has the comparison of exchanges for the priority and semantic policies; the exchange to keep first is the
// smallest. No two exchanges are equal, so the same input gives the same plan.
var orders = map[Policy]func(a, b *exchange) int{
	Priority: func(a, b *exchange) int {
		return cmp.Or(yesFirst(a.system, b.system), cmp.Compare(b.priority, a.priority), cmp.Compare(b.from, a.from))
	},
	Semantic: func(a, b *exchange) int {
		return cmp.Or(yesFirst(a.system, b.system), yesFirst(a.newest, b.newest),
			cmp.Compare(max(b.similarity, 0), max(a.similarity, 0)), cmp.Compare(b.from, a.from))
	},
}

func yesFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// reasonFor returns the reason for which a policy keeps an exchange.
func reasonFor(policy Policy, x exchange) Reason {
	switch {
	case x.system:
		return SystemMessage
	case policy == Priority && x.priority > 0:
		return Prioritised
	case policy == Semantic && x.newest:
		return NewestExchange
	case policy == Semantic && x.similarity > 0:
		return Similar
	}
	return Newest
}

func (p *planner) keep(x exchange, why Reason) {
	for i := x.from; i < x.to; i++ {
		p.Decisions[i] = Decision{Kept, why}
	}
}

// leftOut returns the decision about a message that is not sent word for word.
func (p *planner) leftOut(i int) Decision {
	inSummary := p.Summary.covers(p.History[i])
	switch {
	case p.History[i].Skip:
		return Decision{Skipped, NothingToSend}
	case p.Overflow > 0:
		return Decision{Dropped, NewTooLarge}
	case inSummary && p.SendSummary:
		return Decision{Summarised, InSummary}
	case inSummary:
		return Decision{Dropped, NoRoomForSummary}
	case p.History[i].Answers && (i == 0 || p.History[i].Alone):
		return Decision{Dropped, NoQuestion}
	}
	return Decision{Dropped, NoRoom}
}

func (s Summary) covers(m Message) bool { return s.Last != "" && m.ID <= s.Last }

// tally counts the decisions and sets Send, SummaryAt and PromptTokens.
func (p *planner) tally() {
	p.tallyEarlier()
	p.PromptTokens = p.overhead() + p.New.Tokens
	leading := p.leading()
	ranges := [...]*Range{Kept: &p.Kept, Summarised: &p.Summarised, Dropped: &p.Dropped, Skipped: &p.Skipped}
	for i, m := range p.History {
		verdict := p.Decisions[i].Verdict
		ranges[verdict].add(m.ID)
		if verdict != Kept {
			continue
		}
		if i < leading {
			p.SummaryAt++
		}
		p.Send = append(p.Send, i)
		p.PromptTokens += m.Tokens
	}
	if p.Overflow > 0 {
		p.PromptTokens, p.SummaryAt = 0, 0
		return
	}
	p.Kept.add(p.New.ID)
	if p.SendSummary {
		p.PromptTokens += p.Summary.Tokens
	}
}

// leading returns the number of messages at the beginning of the session that are system messages or replies to them.
func (p *planner) leading() int {
	n := 0
	for _, x := range p.exchanges {
		if !x.system || p.Earlier > 0 {
			break
		}
		n = x.to
	}
	return n
}

// tallyEarlier counts the messages before History. The summary covers the oldest of these messages. The number of covered
// messages before History is the Count of the summary minus the number of covered messages in History.
func (p *planner) tallyEarlier() {
	summarised := min(p.Earlier, max(p.Summary.Count-p.summarised(), 0))
	p.EarlierUnsummarised = summarised < p.Earlier && p.EarlierTokens > 0
	switch {
	case p.EarlierTokens == 0:
		p.Skipped.Count = p.Earlier
	case p.SendSummary:
		p.Summarised.Count, p.Dropped.Count = summarised, p.Earlier-summarised
		if summarised > 0 {
			p.Summarised.Last = p.Summary.Last
		}
	default:
		p.Dropped.Count = p.Earlier
	}
}
