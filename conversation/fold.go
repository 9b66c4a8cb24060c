package conversation

import (
	"context"
	"errors"
	"slices"
	"time"

	"parley/conversation/window"
	"parley/stream"
)

const (
	// foldWait is how long a turn waits for a folding that it had to begin itself, and foldWaitBehind for one that was
	// already under way (design section 5). Then it goes on with what fits; the folding goes on too.
	foldWait       = 10 * time.Second
	foldWaitBehind = 2 * time.Second
	// foldCall is how long one call to the model may take. A later answer is not taken.
	foldCall = time.Minute
	// piecesAtOnce is how many pieces, each of a call to the model, are folded in a row. What is more, the next reply finds.
	piecesAtOnce = 4
	// foldPage is how many messages are read at once of those that no turn has listed.
	foldPage = 100
)

// folding is the folding of a session that is under way here: there is one at a time.
type folding struct {
	// static
	cancel context.CancelFunc
	done   chan struct{} // closed at the end

	// next is what the last reply has left, that ended meanwhile; guarded by Service.mu
	next *fitting

	// set before done is closed
	summary Summary // the newest that is known
	err     error
}

// dueFunc says what is to be folded.
type dueFunc func(window.Input) []window.Batch

// overdue is what is to be folded in front of the model.
func overdue(in window.Input) []window.Batch { return window.Plan(in).SummariseFirst }

// folds reports whether the session's messages are ever folded.
func (f *fitting) folds() bool {
	config := f.Session.Context
	return config.CompressionEnabled && window.SummaryLimit(config.MaxTokens) > 0
}

// unlisted reports whether messages that were not listed are in no summary.
func (f *fitting) unlisted() bool { return f.earlierTokens > 0 && f.Summary.Count < f.earlier }

// adopt takes over a summary that is newer.
func (f *fitting) adopt(summary Summary) {
	if summary.Last > f.Summary.Last && summary.Last > f.Session.Cleared {
		f.Summary = summary
	}
}

// foldInFront folds what is overdue before the model is called, as long as the turn can wait for it, and plans anew. It says
// why what is overdue could not be folded.
func (s *Service) foldInFront(t *turn, f *fitting) SummaryFault {
	isOverdue := func() bool { return len(f.result.SummariseFirst) > 0 || f.result.EarlierUnsummarised && f.folds() }
	fault := SummaryFault("")
	for started := false; isOverdue() && !started; {
		own := *f
		own.listed = slices.Clone(f.listed)
		var x *folding
		x, started = s.startFolding(t.key.Owner, &own, overdue)
		if x == nil || !t.await(x, started) {
			return SummaryLate
		}
		f.adopt(x.summary)
		f.plan()
		fault = SummaryLate
		if x.err != nil {
			fault = SummaryFailed
		}
	}
	if !isOverdue() {
		return ""
	}
	return fault
}

// await waits for a folding as long as a turn can.
func (t *turn) await(x *folding, started bool) bool {
	wait := foldWaitBehind
	if started {
		wait = foldWait
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-x.done:
		return true
	case <-late.C:
	case <-t.ctx.Done():
	}
	return false
}

// foldBehind folds what a turn that is over has left to fold, in the background.
func (s *Service) foldBehind(t *turn) {
	f := t.fitting
	if t.err != nil || t.final.Status == "" || t.final.Error != nil || errors.Is(context.Cause(t.ctx), errCleared) || !f.folds() {
		return
	}
	for _, m := range []*Message{&t.begun.Message, &t.final} {
		x := Index(m, "")
		l := listedOf(&x)
		l.content, l.read = m.Content, true
		f.listed = append(f.listed, l)
	}
	s.foldDue(t.key.Owner, f)
}

// foldDue folds in the background what is due behind a reply; if a folding is under way, after that.
func (s *Service) foldDue(owner Owner, f *fitting) {
	if !f.unlisted() && len(window.PlanSummary(f.input())) == 0 {
		return
	}
	for {
		x, started := s.startFolding(owner, f, window.PlanSummary)
		if x == nil || started {
			return
		}
		s.mu.Lock()
		underWay := s.foldings[f.Session.ID] == x
		if underWay {
			x.next = f
		}
		s.mu.Unlock()
		if underWay {
			return
		}
	}
}

// startFolding folds in the background what is due in a session, unless that is under way: then it returns that, and
// started is false. It returns nil while draining. f is the folding's from now on.
func (s *Service) startFolding(owner Owner, f *fitting, due dueFunc) (x *folding, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.foldings[f.Session.ID]; x != nil {
		return x, false
	}
	if s.isDraining() {
		return nil, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	x = &folding{cancel: cancel, done: make(chan struct{})}
	s.foldings[f.Session.ID] = x
	s.work.Go(func() {
		defer cancel()
		x.err = s.fold(ctx, owner, f, due)
		x.summary = f.Summary
		s.mu.Lock()
		delete(s.foldings, f.Session.ID)
		next := x.next
		s.mu.Unlock()
		close(x.done)
		if next != nil && ctx.Err() == nil {
			next.adopt(f.Summary)
			s.foldDue(owner, next)
		}
	})
	return x, true
}

// stopFolding ends a folding whose session is gone or was cleared.
func (s *Service) stopFolding(sessionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.foldings[sessionID]; x != nil {
		x.cancel()
	}
}

// fold folds what is due, piece after piece: first what no turn has listed, if there is such. f has the newest summary
// afterwards: its own, or the one of whoever was first.
func (s *Service) fold(ctx context.Context, owner Owner, f *fitting, due dueFunc) error {
	// What was folded since f was read needs no other call to the model: a trip to the store is nothing beside that.
	now, err := s.Store.Context(ctx, owner, f.Session.ID, 0)
	if err != nil {
		return s.foldFailed(ctx, owner, f, err)
	}
	if now.Session.Cleared != f.Session.Cleared {
		return ErrStale
	}
	f.adopt(now.Summary)
	var pieces []window.Batch // that are due and not folded yet
	for range piecesAtOnce {
		var p *piece
		var err error
		if f.unlisted() {
			p, err = s.unlistedPiece(ctx, owner, f)
		} else {
			if pieces == nil {
				pieces = due(f.input())
			}
			if len(pieces) > 0 {
				p, err = s.listedPiece(ctx, owner, f, pieces[0])
				pieces = pieces[1:]
			}
		}
		if err == nil && p == nil {
			break
		}
		if err == nil {
			err = s.foldPiece(ctx, owner, f, p)
		}
		if err != nil {
			return s.foldFailed(ctx, owner, f, err)
		}
	}
	return nil
}

// foldFailed says what came between: nothing if another has folded, whose summary f then has.
func (s *Service) foldFailed(ctx context.Context, owner Owner, f *fitting, err error) error {
	switch {
	case errors.Is(err, ErrStale):
		now, err := s.Store.Context(ctx, owner, f.Session.ID, 0)
		f.adopt(now.Summary)
		return err
	case errors.Is(err, ErrSessionNotFound), ctx.Err() != nil:
		return err
	}
	s.Log.Warn("a session's older messages could not be summarised; it is tried again behind the next reply",
		"session", f.Session.ID, "error", err)
	return err
}

// piece is what one call to the model folds.
type piece struct {
	messages []listed // that are sent to it
	tokens   int      // of them
	last     string   // the last message that the summary will cover
	count    int      // how many messages that is more than before
}

func (p *piece) add(l listed) {
	p.count++
	p.last = l.ID
	if !l.Skip {
		p.messages = append(p.messages, l)
		p.tokens += l.Tokens
	}
}

// listedPiece returns a piece with its texts.
func (s *Service) listedPiece(ctx context.Context, owner Owner, f *fitting, due window.Batch) (*piece, error) {
	var p piece
	var places []int
	for i := due.From; i < due.To; i++ {
		if !f.listed[i].Skip {
			places = append(places, i)
		}
	}
	if err := f.read(ctx, s.Store, owner, places); err != nil {
		return nil, err
	}
	for _, l := range f.listed[due.From:due.To] {
		p.add(l)
	}
	return &p, nil
}

// unlistedPiece returns the oldest exchanges that are in no summary, of those before what was listed.
func (s *Service) unlistedPiece(ctx context.Context, owner Owner, f *fitting) (*piece, error) {
	page, err := s.Store.Messages(ctx, owner, f.Session.ID, MessageQuery{From: f.Summary.Last, Ascending: true, Limit: foldPage})
	if err != nil {
		return nil, err
	}
	limit := window.SummaryInputLimit(f.Session.Context.MaxTokens)
	var whole, p piece // p has one exchange more, which may be cut off by the page's end
	for i := range page.Messages {
		m := &page.Messages[i]
		if len(f.listed) > 0 && m.ID >= f.listed[0].ID {
			break
		}
		x := Index(m, "")
		l := listedOf(&x)
		l.content, l.read = m.Content, true
		if !l.Answers {
			whole = piece{slices.Clone(p.messages), p.tokens, p.last, p.count}
		}
		p.add(l)
		if p.tokens > limit && whole.count > 0 {
			return &whole, nil
		}
	}
	if p.count == 0 {
		return nil, nil
	}
	return &p, nil
}

// foldPiece has the model write a new summary, and puts it in the place of the old one.
func (s *Service) foldPiece(ctx context.Context, owner Owner, f *fitting, p *piece) error {
	ctx, cancel := context.WithTimeout(ctx, foldCall)
	defer cancel()
	summary := Summary{Last: p.last, Count: f.Summary.Count + p.count, Text: f.Summary.Text, Tokens: f.Summary.Tokens}
	var usage Usage
	if len(p.messages) > 0 {
		var err error
		if summary.Text, usage, err = s.summarise(ctx, f.Session.Context.MaxTokens, f.Summary.Text, p.messages); err != nil {
			return err
		}
		summary.Tokens = s.Count(summary.Text)
	}
	summary.Replaced = f.Summary.weighed().Tokens + p.tokens
	undo := s.follower.folds(f.Session.ID, summary)
	if err := s.Store.SaveSummary(ctx, owner, f.Session.ID, f.Summary.Last, summary, usage); err != nil {
		undo()
		return err
	}
	f.Summary = summary
	s.hub.NotifySummarised(f.Session.ID, summary.compression(p.count))
	return nil
}

// compression is what viewers are told of a summary that has so many messages more than the one before.
func (s *Summary) compression(more int) stream.SummaryStats {
	return stream.SummaryStats{Summarised: more, TokensBefore: s.Replaced, TokensAfter: s.weighed().Tokens}
}
