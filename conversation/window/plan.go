package window

import (
	"cmp"
	"slices"
)

// Policy says which messages stay word for word where not all of them can (spec: Context configuration). One that is
// none of these is FIFO.
type Policy string

// The policies; see [Plan].
const (
	FirstInFirstOut Policy = "fifo"
	Priority        Policy = "priority"
	Semantic        Policy = "semantic"
)

// Message is what the window needs to know of a message.
type Message struct {
	ID     string // ids rise within a session
	Tokens int    // with MessageOverhead
	// System says that its role is system.
	System bool
	// Skip says that the message is never sent: a reply that failed or has no text.
	Skip bool
	// Answers says that the message is the reply to the one before it; the two stay or go together.
	Answers bool
	// Priority is the message's own, by [PriorityOf]. Of an exchange the higher one counts.
	Priority float64
	// Similarity is how near in meaning it is to the new message: more is nearer, on any scale; 0 or less is not near at
	// all, or not known. Of an exchange the higher one counts.
	Similarity float64
}

// Summary is what messages were folded into: all those of the session up to Last. The zero value is none.
type Summary struct {
	Tokens int    // with MessageOverhead; at most SummaryLimit if it is to be sent
	Last   string // the id of the last message that is in it; "" for no summary
	Count  int    // how many messages are in it, those that are never sent included
}

// Input is what a plan is made of.
type Input struct {
	MaxTokens   int
	Compression bool
	Policy      Policy
	Summary     Summary
	// History holds the session's newest messages before New, oldest first.
	History []Message
	// Earlier is how many messages there are before History, and EarlierTokens what they take: 0 means that all of them
	// are never sent. They cannot be kept; without compression there must be none to keep.
	Earlier, EarlierTokens int
	// New is the message that the model is to answer.
	New Message
}

// Range is a number of messages, and the ids of the first and the last of them. First is "" where the range begins
// before what was listed.
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

// Result is a plan.
type Result struct {
	// Overflow is 0, or the tokens that the prompt and the reply's room would take, above MaxTokens, where the new message
	// cannot be taken in ([Check]). Nothing is sent then.
	Overflow int
	// Send are the indexes of the messages of the history that are sent word for word, in their order. New follows them.
	Send []int
	// Summarised says that the summary is sent too, in front of the message History[Send[SummaryAt]], or of New if
	// SummaryAt is len(Send): behind the system messages that the session begins with, and the answers to them, else first.
	SendSummary bool
	SummaryAt   int
	// Decisions says of each message of the history what becomes of it, and why.
	Decisions []Decision
	// Each message is counted in exactly one of these, New in Kept, Input.Earlier in Folded, Dropped or Skipped.
	Kept, Summarised, Dropped, Skipped Range
	// PromptTokens is what is sent, PromptOverhead included.
	PromptTokens int
	// SummariseFirst are the pieces to fold before the model is called; see [PlanSummary] for what is better folded afterwards.
	SummariseFirst []Batch
	// EarlierUnsummarised says that messages before History are in no summary: SummariseFirst is empty then, and who folds must list the
	// history from Summary.Last on first.
	EarlierUnsummarised bool
}

// Plan decides what of a conversation is sent (design section 5). It never sends more than [Budget], and sorts at most
// once: n log n for n messages. The same input has the same plan.
//
// If everything fits, everything is sent, word for word and without a summary, whatever is in that. If not, the new
// message comes first, then the summary if there is room beside it, then exchanges (a message and its answer, whole)
// until the budget is used up:
//
//   - fifo: the newest, up to the first that does not fit.
//   - priority: system messages; then by priority, the higher first; among equals the newest.
//   - semantic: the newest exchange; then by similarity, the nearest first; among equals the newest.
//
// In the last two an exchange that does not fit is passed over, and the next one tried.
func Plan(in Input) Result {
	p := newPlanner(in)
	p.plan()
	return p.Result
}

// exchange is a message with its answer, if it has one: what stays or goes as a whole.
type exchange struct {
	from, to   int // of the history, to excluded
	tokens     int
	system     bool
	headless   bool // an answer whose question is not listed; it never stays
	newest     bool
	priority   float64
	similarity float64
}

// planner is a plan in the making.
type planner struct {
	Input
	Result
	exchanges []exchange
	tokens    int // of the whole history
	left      int // of the budget
	compared  int // exchanges with each other, for the test of the effort
}

func newPlanner(in Input) *planner {
	p := &planner{Input: in, tokens: in.EarlierTokens}
	for i, m := range in.History {
		if !m.Answers || i == 0 {
			p.exchanges = append(p.exchanges, exchange{
				from: i, to: i, system: m.System, headless: m.Answers, priority: m.Priority, similarity: m.Similarity,
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
		p.tokens += p.exchanges[i].tokens
	}
	if n := len(p.exchanges); n > 0 {
		p.exchanges[n-1].newest = true
	}
	return p
}

func (p *planner) plan() {
	p.Decisions = make([]Decision, len(p.History))
	p.left = Budget(p.MaxTokens) - p.New.Tokens
	current, ok := Check(p.MaxTokens, p.Compression, p.tokens, p.New.Tokens)
	switch {
	case !ok:
		p.Overflow = current
	case p.tokens <= p.left && p.EarlierTokens == 0:
		for _, x := range p.exchanges {
			p.keep(x, Fits)
		}
	default:
		if p.Summary.Last != "" && p.Summary.Tokens <= min(p.left, SummaryLimit(p.MaxTokens)) {
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
	p.SummariseFirst = p.overdue()
}

// choose keeps what the policy wants to.
func (p *planner) choose() {
	compare, ranked := orders[p.Policy]
	order := slices.Clone(p.exchanges)
	if ranked {
		slices.SortFunc(order, func(a, b exchange) int { p.compared++; return compare(a, b) })
	} else {
		slices.Reverse(order)
	}
	for _, x := range order {
		if x.headless || x.tokens > p.left {
			if !ranked {
				return
			}
			continue
		}
		p.left -= x.tokens
		p.keep(x, reasonFor(p.Policy, x))
	}
}

// orders holds how the policies that rank put exchanges in order, the one to keep first in front. No two exchanges are
// equal in it, so that the same input has the same plan.
var orders = map[Policy]func(a, b exchange) int{
	Priority: func(a, b exchange) int {
		return cmp.Or(yesFirst(a.system, b.system), cmp.Compare(b.priority, a.priority), cmp.Compare(b.from, a.from))
	},
	Semantic: func(a, b exchange) int {
		return cmp.Or(yesFirst(a.newest, b.newest), cmp.Compare(max(b.similarity, 0), max(a.similarity, 0)), cmp.Compare(b.from, a.from))
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

// reasonFor says why a policy keeps an exchange.
func reasonFor(policy Policy, x exchange) Reason {
	switch {
	case policy == Priority && x.system:
		return SystemMessage
	case policy == Priority && x.priority > 0:
		return Prioritised
	case policy == Semantic && x.newest:
		return NewestExchange
	case policy == Semantic && x.similarity > 0:
		return Near
	}
	return Newest
}

func (p *planner) keep(x exchange, why Reason) {
	for i := x.from; i < x.to; i++ {
		p.Decisions[i] = Decision{Kept, why}
	}
}

// leftOut decides of a message that is not sent word for word.
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
	case p.History[i].Answers && i == 0:
		return Decision{Dropped, Headless}
	}
	return Decision{Dropped, NoRoom}
}

func (s Summary) covers(m Message) bool { return s.Last != "" && m.ID <= s.Last }

// tally adds up what was decided, and finds the summary's place.
func (p *planner) tally() {
	p.tallyEarlier()
	p.PromptTokens = PromptOverhead + p.New.Tokens
	leading := p.leading()
	ranges := map[Verdict]*Range{Kept: &p.Kept, Summarised: &p.Summarised, Dropped: &p.Dropped, Skipped: &p.Skipped}
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

// leading returns how many messages the session begins with that are system messages and answers to them.
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

// tallyEarlier counts the messages that are not listed: the first of them are in the summary, as far as that goes beyond
// the listed ones.
func (p *planner) tallyEarlier() {
	summarised := min(p.Earlier, max(p.Summary.Count-p.folded(), 0))
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
