package conversation

import (
	"context"
	"time"

	"parley/conversation/window"
	"parley/stream"
)

// fitting fits a message into the context window of its session (design section 5): what the store gave, as window.Plan
// wants it, and the plan as what the model is asked. It is for one goroutine.
type fitting struct {
	Context          // before the message
	message Message  // the new one; "" is its id in a dry run
	listed  []listed // the history, oldest first, as far as it was given
	earlier int      // how many messages there are before that
	// earlierTokens is what these take in a prompt.
	earlierTokens int
	result        window.Result // of plan
	similarity    Similarity    // by what compare compared
}

// listed is a message of the history as it is weighed.
type listed struct {
	window.Message
	role    Role
	content string
	read    bool     // whether content is there
	indexed *Indexed // nil for a message that the index has not
}

// context returns what the turn began with, its session as it was before.
func (b *TurnStart) context() Context {
	session := b.Session
	session.MessageCount -= 2
	session.HistoryTokens -= b.Message.TokensInPrompt()
	return Context{Session: session, Summary: b.Summary, History: b.History, Index: b.Index}
}

// newFitting returns the fitting of a message, not planned yet.
func newFitting(c Context, message Message) *fitting {
	f := &fitting{Context: c, message: message, listed: make([]listed, 0, max(len(c.History), len(c.Index)))}
	indexed := make(map[string]*Indexed, len(c.Index)) // by id
	for i := range c.Index {
		x := &c.Index[i]
		indexed[x.ID] = x
		if len(c.History) == 0 || x.ID < c.History[0].ID {
			l := listedOf(x)
			l.indexed = x
			f.listed = append(f.listed, l)
		}
	}
	for i := range c.History {
		m := &c.History[i]
		x := Index(m, "")
		l := listedOf(&x)
		l.content, l.read, l.indexed = m.Content, true, indexed[m.ID]
		f.listed = append(f.listed, l)
	}
	f.earlier = c.Session.MessageCount - len(f.listed)
	f.earlierTokens = c.Session.HistoryTokens
	for _, l := range f.listed {
		if !l.Skip {
			f.earlierTokens -= l.Tokens
		}
	}
	f.earlierTokens = max(f.earlierTokens, 0)
	return f
}

func listedOf(x *Indexed) listed {
	return listed{role: x.Role, Message: window.Message{
		ID: x.ID, Tokens: x.Tokens + window.MessageOverhead, System: x.Role == System, Skip: x.Skip,
		Answers: x.Role == Assistant, Priority: x.Priority,
	}}
}

// compares reports whether the window is to choose what is near to the new message.
func (f *fitting) compares() bool {
	return f.Session.Context.RetentionPolicy == Semantic && len(f.Index) > 0
}

// compare says of each reply, where the window is to choose, how near its exchange is to the new message: by the words of both
// and, if that is known, by what the message means.
func (f *fitting) compare(meaning window.Vector) {
	if !f.compares() {
		return
	}
	var replies []int
	var exchanges []window.Terms
	var vectors []window.Vector
	for i := range f.listed {
		if l := &f.listed[i]; l.indexed != nil && l.Answers {
			replies = append(replies, i)
			exchanges, vectors = append(exchanges, l.indexed.Terms), append(vectors, l.indexed.Vector)
		}
	}
	f.similarity = ByWords
	scores := window.LexicalScores(window.TermsOf(f.message.Content), exchanges)
	if meaning != nil {
		f.similarity = ByEmbeddings
		scores = window.FuseScores(scores, meaning, vectors)
	}
	for i, score := range scores {
		f.listed[replies[i]].Similarity = score
	}
}

// input is what is planned from.
func (f *fitting) input() window.Input {
	config := f.Session.Context
	in := window.Input{
		MaxTokens: config.MaxTokens, Compression: config.CompressionEnabled, Policy: window.Policy(config.RetentionPolicy),
		Summary: f.Summary.weighed(), History: make([]window.Message, len(f.listed)), Earlier: f.earlier, EarlierTokens: f.earlierTokens,
		New: window.Message{ID: f.message.ID, Tokens: f.message.TokensInPrompt(), System: f.message.Role == System},
	}
	for i := range f.listed {
		in.History[i] = f.listed[i].Message
	}
	return in
}

// weighed is a summary as the window weighs it.
func (s *Summary) weighed() window.Summary {
	if s.Last == "" {
		return window.Summary{}
	}
	return window.Summary{Tokens: s.Tokens + window.MessageOverhead, Last: s.Last, Count: s.Count}
}

func (f *fitting) plan() { f.result = window.Plan(f.input()) }

// unread returns the messages that are chosen, or are among from to to, and whose text was not read: their places and ids.
func (f *fitting) unread(places []int) (missing []int, ids []string) {
	for _, i := range places {
		if !f.listed[i].read {
			missing, ids = append(missing, i), append(ids, f.listed[i].ID)
		}
	}
	return missing, ids
}

// read reads the texts of messages that are not there yet.
func (f *fitting) read(ctx context.Context, store Store, owner Owner, places []int) error {
	missing, ids := f.unread(places)
	if len(ids) == 0 {
		return nil
	}
	messages, err := store.MessagesByID(ctx, owner, f.Session.ID, ids)
	if err != nil {
		return err
	}
	for _, i := range missing {
		if len(messages) > 0 && messages[0].ID == f.listed[i].ID {
			f.listed[i].content, f.listed[i].read = messages[0].Content, true
			messages = messages[1:]
		}
	}
	if _, ids = f.unread(places); len(ids) > 0 {
		return ErrMessageNotFound
	}
	return nil
}

// request is what the model is asked by the plan. The texts of what is sent must have been read.
func (f *fitting) request() stream.Request {
	r := stream.Request{
		MaxTokens: window.ReplyRoom(f.Session.Context.MaxTokens), Messages: make([]stream.PromptMessage, 0, len(f.result.Send)+2),
	}
	summary := func(at int) {
		if f.result.SendSummary && f.result.SummaryAt == at {
			r.Messages = append(r.Messages, stream.PromptMessage{Role: string(System), Content: f.Summary.Text})
		}
	}
	for at, i := range f.result.Send {
		summary(at)
		r.Messages = append(r.Messages, stream.PromptMessage{Role: string(f.listed[i].role), Content: f.listed[i].content})
	}
	summary(len(f.result.Send))
	r.Messages = append(r.Messages, stream.PromptMessage{Role: string(f.message.Role), Content: f.message.Content})
	return r
}

// report is what a reply says that it was built from.
func (f *fitting) report() ContextReport {
	config, r := f.Session.Context, &f.result
	return ContextReport{
		Policy: config.RetentionPolicy, PromptTokens: r.PromptTokens, MaxTokens: config.MaxTokens, Kept: MessageRange(r.Kept),
		InSummary: MessageRange(r.Summarised), Dropped: MessageRange(r.Dropped), Skipped: MessageRange(r.Skipped), Summarised: r.SendSummary,
		Similarity: f.similarity,
	}
}

// droppedTokens returns what the messages take that the model has no trace of.
func (f *fitting) droppedTokens() (n int) {
	listed := 0
	for i, d := range f.result.Decisions {
		if d.Verdict == window.Dropped {
			n += f.listed[i].Tokens
			listed++
		}
	}
	if f.result.Dropped.Count > listed {
		n += f.earlierTokens // of some of which there may be a trace
	}
	return n
}

// readWait is how long a turn waits for the texts that its window chose, before it is content with the newest.
const readWait = 2 * time.Second

// fit fits a turn's message into its window and returns what the model is asked. It cannot fail: where what is overdue is
// not folded in time, the turn goes on without, and says so; where the texts that were chosen cannot be read, it chooses
// among those that came when the turn began.
func (s *Service) fit(t *turn) stream.Request {
	f := newFitting(t.begun.context(), t.begun.Message)
	f.compare(s.meaning(t.ctx, f))
	f.plan()
	fault := s.foldInFront(t, f)
	ctx, cancel := context.WithTimeout(t.ctx, readWait)
	defer cancel()
	if err := f.read(ctx, s.Store, t.key.Owner, f.result.Send); err != nil {
		if t.ctx.Err() == nil {
			s.Log.Warn("messages for the context window could not be read: a reply is built from the newest alone",
				"session", t.key.SessionID, "message", t.key.ReplyID, "error", err)
		}
		f.Index = nil
		f = newFitting(f.Context, f.message)
		f.plan()
	}
	t.fitting, t.report = f, f.report()
	t.report.SummaryFault = fault
	if dropped := f.result.Dropped.Count; dropped > 0 {
		s.hub.NotifySummarised(f.Session.ID, stream.SummaryStats{Dropped: dropped, TokensBefore: f.droppedTokens()})
	}
	return f.request()
}
