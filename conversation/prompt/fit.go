package prompt

import (
	"cmp"
	"slices"
	"sort"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// Fit fits one new message into the window of its session. Only one goroutine may use it at a time.
type Fit struct {
	// Context is the context that the store returned for the messages before the new message. Adopt replaces its
	// Summary.
	conversation.Context
	// Messages are the known messages before the new message, oldest first: the newest messages without a gap, and before them
	// perhaps single system messages. An index into Messages is called a place.
	Messages []Message
	// Result is the result of the last Plan.
	Result window.Result

	message conversation.Message // the new message; in a preview it has no id
	newest  int                  // the place of the first of the newest messages; before it are single system messages
	earlier int                  // number of messages in the session that are older than the newest messages and not in Messages
	// earlierTokens is the number of tokens that these older messages take in a prompt.
	earlierTokens int
	similarity    conversation.Similarity // the method that Compare used; "" if it compared nothing
	limit         Limit
}

// Message is a message of the history, with the data that the window needs.
type Message struct {
	window.Message
	Role    conversation.Role
	Content string
	Read    bool // whether Content is known
	// Unanswered marks a reply that failed without text. The message before it is then skipped, too.
	Unanswered bool
	Indexed    *conversation.Indexed // the message's index entry; nil if it has none
}

// MessageOf returns m as a Message with known content and normal priority.
func MessageOf(m *conversation.Message) Message {
	x := conversation.Outline(m)
	l := weigh(&x)
	l.Content, l.Read = m.Content, true
	return l
}

func weigh(x *conversation.Indexed) Message {
	return Message{Role: x.Role, Unanswered: x.Unanswered, Message: window.Message{
		ID: x.ID, Tokens: x.Tokens + window.MessageOverhead, System: x.Role == conversation.System, Skip: x.Skip,
		Answers: x.Role == conversation.Assistant, Priority: x.Priority,
	}}
}

// New returns a Fit of message. c is the Context that the store returned for message. Call Plan before you use Result.
func New(c conversation.Context, message conversation.Message) *Fit {
	const added = 2 // the turn's own messages, which Add appends after the reply
	f := &Fit{Context: c, message: message, Messages: make([]Message, 0, max(len(c.History), len(c.Index))+added)}
	for i := range c.Index {
		x := &c.Index[i]
		if len(c.History) == 0 || x.ID < c.History[0].ID {
			m := weigh(x)
			m.Indexed = x
			f.Messages = append(f.Messages, m)
		}
	}
	older := len(f.Messages)
	for i := range c.History {
		m := MessageOf(&c.History[i])
		at, ok := slices.BinarySearchFunc(c.Index, m.ID, func(x conversation.Indexed, id string) int { return cmp.Compare(x.ID, id) })
		if ok {
			m.Indexed = &c.Index[at]
			m.Priority = m.Indexed.Priority
		}
		f.Messages = append(f.Messages, m)
	}
	if c.Session.Context.RetentionPolicy == conversation.FIFO && len(c.History) > 0 { // the index has only system messages
		f.newest = older
		f.Messages[older].Alone = older > 0 && f.Messages[older].Answers
	}
	SkipUnanswered(f.Messages)
	f.earlier = c.Session.MessageCount - len(f.Messages)
	if f.earlier <= 0 {
		return f
	}
	f.earlierTokens = c.Session.HistoryTokens
	for _, m := range f.Messages {
		if !m.Skip {
			f.earlierTokens -= m.Tokens
		}
	}
	f.earlierTokens = max(f.earlierTokens, 0)
	return f
}

// SkipUnanswered marks the messages whose replies failed without text, so that no prompt has them.
func SkipUnanswered(messages []Message) {
	for i := 1; i < len(messages); i++ {
		if messages[i].Unanswered && !messages[i-1].Answers {
			messages[i-1].Skip = true
		}
	}
}

// LimitTo plans from now on for a model with that limit.
func (f *Fit) LimitTo(l Limit) { f.limit = l }

// Limit returns the limit of the last call of LimitTo.
func (f *Fit) Limit() Limit { return f.limit }

// Size returns the window: the session's, or that of the model if the model's context is smaller.
func (f *Fit) Size() window.Size { return f.limit.Size(f.Session.Window()) }

// LacksIndex reports whether the window must choose among the messages, but the store has returned no index. The store returns an
// index only if the session's own window is too small.
func (f *Fit) LacksIndex() bool {
	config := f.Session.Context
	return len(f.Index) == 0 && config.CompressionEnabled && config.RetentionPolicy != conversation.FIFO &&
		f.Size().MaxTokens < config.MaxTokens && f.Result.Dropped.Count+f.Result.Summarised.Count > 0
}

// WithIndex returns a new Fit with an index. Entries that are not older than the new message are ignored. Call Plan before you use
// Result.
func (f *Fit) WithIndex(index []conversation.Indexed) *Fit {
	c := f.Context
	c.Index = index[:sort.Search(len(index), func(i int) bool { return index[i].ID >= f.message.ID })]
	indexed := New(c, f.message)
	indexed.limit = f.limit
	return indexed
}

// HistoryOnly returns a new Fit that uses only Context.History and the index entries of its messages. All texts in History
// are known. Call Plan before you use Result.
func (f *Fit) HistoryOnly() *Fit {
	c := f.Context
	c.Index = slices.DeleteFunc(slices.Clone(c.Index), func(x conversation.Indexed) bool {
		return len(c.History) == 0 || x.ID < c.History[0].ID
	})
	only := New(c, f.message)
	only.limit = f.limit
	return only
}

// Add appends messages to Messages. Their ids must be greater than the ids in Messages.
func (f *Fit) Add(messages ...*conversation.Message) {
	for _, m := range messages {
		f.Messages = append(f.Messages, MessageOf(m))
	}
}

// Text returns the content of the new message.
func (f *Fit) Text() string { return f.message.Content }

// Compares reports whether the window must choose by similarity to the new message.
func (f *Fit) Compares() bool {
	return f.Session.Context.RetentionPolicy == conversation.Semantic && len(f.Index) > 0
}

// Compare sets the similarity of each exchange to the new message, if the window must choose by similarity. It always
// compares words. If embedding is not nil, it compares embeddings too. embedding is the embedding of the new message.
func (f *Fit) Compare(embedding window.Vector) {
	if !f.Compares() {
		return
	}
	exchanges := len(f.Index)/2 + 1
	places, terms, vectors := make([]int, 0, exchanges), make([]window.Terms, 0, exchanges), make([]window.Vector, 0, exchanges)
	for i := range f.Messages {
		if m := &f.Messages[i]; m.Indexed != nil && m.Answers {
			places = append(places, i)
			terms, vectors = append(terms, m.Indexed.Terms), append(vectors, m.Indexed.Vector)
		}
	}
	f.similarity = conversation.ByWords
	scores := window.LexicalScores(window.TermsOf(f.message.Content), terms)
	if embedding != nil {
		f.similarity = conversation.ByEmbeddings
		scores = window.FuseScores(scores, embedding, vectors)
	}
	for i, score := range scores {
		f.Messages[places[i]].Similarity = score
	}
}

// Input returns the input for window.Plan.
func (f *Fit) Input() window.Input {
	config := f.Session.Context
	in := window.Input{
		Size: f.Size(), Compression: config.CompressionEnabled, Policy: window.Policy(config.RetentionPolicy),
		Summary: f.Summary.Weighed(), History: make([]window.Message, len(f.Messages)), Earlier: f.earlier, EarlierTokens: f.earlierTokens,
		New: window.Message{ID: f.message.ID, Tokens: f.message.TokensInPrompt(), System: f.message.Role == conversation.System},
	}
	for i := range f.Messages {
		in.History[i] = f.Messages[i].Message
	}
	return in
}

// Plan plans the prompt and sets Result.
//
// Limit.Scale comes from other prompts, and may be too high for this one. If the prompt does not fit with it, and the provider has
// not refused a prompt of this turn, Plan sets it to 1, so that the provider decides.
func (f *Fit) Plan() {
	f.Result = window.Plan(f.Input())
	if f.Result.Overflow > 0 && f.limit.Scale > 1 && !f.limit.refused {
		f.limit.Scale = 1
		f.Result = window.Plan(f.Input())
	}
}

// Summarises reports whether the session can have a summary: compression is enabled, and the window is large enough for
// a summary.
func (f *Fit) Summarises() bool {
	return f.Session.Context.CompressionEnabled && f.Size().SummaryLimit() > 0
}

// LacksEarlier reports whether some messages that are older than Messages are in no summary.
func (f *Fit) LacksEarlier() bool { return f.earlierTokens > 0 && f.Summary.Count < f.earlier }

// Newest returns the id of the first of the newest messages, which are known without a gap; "" if no message is known.
func (f *Fit) Newest() string {
	if f.newest < len(f.Messages) {
		return f.Messages[f.newest].ID
	}
	return ""
}

// Overdue reports whether the plan drops messages that a summary should cover.
func (f *Fit) Overdue() bool {
	return len(f.Result.SummariseFirst) > 0 || f.Result.EarlierUnsummarised && f.Summarises()
}

// Adopt replaces the summary with a newer one. It ignores a summary that is not newer, and a summary of cleared
// messages.
func (f *Fit) Adopt(summary conversation.Summary) {
	if summary.Last > f.Summary.Last && summary.Last > f.Session.Cleared {
		f.Summary = summary
	}
}

// Sent returns the places of the messages that the plan sends word for word.
func (f *Fit) Sent() []int { return f.Result.Send }

// Missing returns the ids of the messages at these places that have no known text, in the order of places.
func (f *Fit) Missing(places []int) (ids []string) {
	for _, i := range places {
		if !f.Messages[i].Read {
			ids = append(ids, f.Messages[i].ID)
		}
	}
	return ids
}

// Fill sets the texts of the messages at these places from messages, which must have the order of Missing. It reports
// whether the texts at all these places are known now.
func (f *Fit) Fill(places []int, messages []conversation.Message) bool {
	complete := true
	for _, i := range places {
		m := &f.Messages[i]
		if m.Read {
			continue
		}
		if len(messages) > 0 && messages[0].ID == m.ID {
			m.Content, m.Read = messages[0].Content, true
			messages = messages[1:]
		}
		complete = complete && m.Read
	}
	return complete
}

// Request returns the request to the model according to the plan: the instructions, the chosen messages with the summary, and the
// new message. The texts of the messages at Sent must be known.
func (f *Fit) Request() stream.Request {
	model := &f.Session.Model
	r := stream.Request{
		MaxTokens: f.limit.reply(f.Size(), f.Result.PromptTokens), Messages: make([]stream.PromptMessage, 0, len(f.Result.Send)+3),
		Temperature: model.Temperature, TopP: model.TopP, Stop: model.Stop, Seed: model.Seed, ReasoningEffort: model.ReasoningEffort,
	}
	if f.Session.Instructions != "" {
		r.Messages = append(r.Messages, stream.PromptMessage{Role: string(conversation.System), Content: f.Session.Instructions})
	}
	summary := func(at int) {
		if f.Result.SendSummary && f.Result.SummaryAt == at {
			r.Messages = append(r.Messages, stream.PromptMessage{Role: string(conversation.System), Content: f.Summary.Text})
		}
	}
	for at, i := range f.Result.Send {
		summary(at)
		r.Messages = append(r.Messages, stream.PromptMessage{Role: string(f.Messages[i].Role), Content: f.Messages[i].Content})
	}
	summary(len(f.Result.Send))
	r.Messages = append(r.Messages, stream.PromptMessage{Role: string(f.message.Role), Content: f.message.Content})
	return r
}

// TextRoom returns the maximum number of our tokens for the text of the reply, if the request allows more tokens because the model
// reasons. Otherwise it returns 0: the limit of the request then bounds the text.
func (f *Fit) TextRoom() int {
	if z := f.Size(); f.limit.Reasons && z.Reply == 0 {
		return z.ReplyRoom()
	}
	return 0
}

// Unembedded returns exchanges of the index that have no embedding by this model: at most n, newest first.
func (f *Fit) Unembedded(model string, n int) (exchanges [][]Message) {
	for i := len(f.Messages) - 1; i >= 0 && len(exchanges) < n; i-- {
		m := f.Messages[i]
		if !m.Answers || m.Indexed == nil || m.Indexed.Vector.MadeBy(model) {
			continue
		}
		from := i
		if i > 0 && !f.Messages[i-1].Answers {
			from--
		}
		var exchange []Message
		for _, m := range f.Messages[from : i+1] {
			m.Indexed = nil // a pointer into the index would keep the whole index in memory
			exchange = append(exchange, m)
		}
		exchanges = append(exchanges, exchange)
	}
	return exchanges
}
