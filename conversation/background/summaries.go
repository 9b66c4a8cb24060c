package background

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/window"
	"parley/stream"
	"parley/stream/models"
)

const (
	// ownTimeout is the longest wait of a turn for a summary job that it starts. Without the summary, the turn drops
	// messages. otherTimeout is the longest wait for a job that was running already, and so needs less time. After
	// either timeout, the job continues.
	ownTimeout   = 10 * time.Second
	otherTimeout = 2 * time.Second
	// callTimeout bounds one call to the model.
	callTimeout = time.Minute
	// callsPerJob is the maximum number of calls to the model in one job, so that one session cannot occupy the model.
	// The job after the next reply summarises further.
	callsPerJob = 4
	// summaryJobs limits the number of running jobs: at this number, no further job starts after a reply. Each job
	// keeps its session's window in memory.
	summaryJobs = 64
)

// Store is the part of conversation.Store that this package uses.
type Store interface {
	conversation.ContextStore
	Messages(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, error)
}

// Viewers shows new summaries to viewers.
type Viewers interface {
	// ShowSummary calls save, and shows the summary to the session's viewers if save succeeds. It returns the error of
	// save. added is the number of messages that the summary covers and the previous summary did not.
	ShowSummary(sessionID string, summary conversation.Summary, added int, save func() error) error
}

// SummaryOptions are the dependencies of [Summaries].
type SummaryOptions struct {
	Store    Store
	Models   *models.Set
	Timeouts stream.Timeouts
	MaxBytes int                   // the argument maxBytes of window.ReplyBytes
	Count    func(text string) int // returns the number of tokens of a text
	Viewers  Viewers
	Log      *slog.Logger
}

// Summaries summarises the old messages of sessions, after replies and before replies. Methods may be called from any
// goroutine.
type Summaries struct {
	SummaryOptions
	worker *Worker[summarised]
}

// summarised is the result of a job: the newest summary that the job knows, and the error that stopped the job, or nil.
type summarised struct {
	summary conversation.Summary
	err     error
}

// NewSummaries returns a Summaries. It runs no goroutine while it has no job.
func NewSummaries(options SummaryOptions) *Summaries {
	return &Summaries{SummaryOptions: options, worker: NewWorker[summarised](summaryJobs)}
}

// Cancel cancels the job of a session that is gone or was cleared.
func (s *Summaries) Cancel(sessionID string) { s.worker.Cancel(sessionID) }

// Drain lets the running jobs end until ctx is done, then cancels them. It returns when no job is running.
func (s *Summaries) Drain(ctx context.Context) { s.worker.Drain(ctx) }

// BeforeReply summarises the messages that the plan of f would drop, and plans again. A turn calls BeforeReply before it
// calls the model. BeforeReply waits at most until a timeout (ownTimeout, otherTimeout) or until ctx is done. It returns
// the reason why the summary still lacks messages; "" if the summary lacks none.
func (s *Summaries) BeforeReply(ctx context.Context, owner conversation.Owner, f *prompt.Fit) conversation.SummaryFault {
	fault := conversation.SummaryFault("")
	for started := false; f.Overdue() && !started; {
		own := *f // a copy for the job, which may run longer than this turn waits
		own.Messages = slices.Clone(f.Messages)
		var job *Job[summarised]
		job, started = s.worker.Join(f.Session.ID, func(ctx context.Context) summarised {
			return s.run(ctx, owner, &own, overduePieces)
		})
		if job == nil || !await(ctx, job, started) {
			return conversation.SummaryLate
		}
		f.Adopt(job.Result().summary)
		f.Plan()
		fault = conversation.SummaryLate // a job of an earlier turn may not cover all messages that this turn must drop
		if job.Result().err != nil {
			fault = conversation.SummaryFailed
		}
	}
	if !f.Overdue() {
		return ""
	}
	return fault
}

// await waits for a job: 10 s if this turn started it, otherwise 2 s. It reports whether the job is done.
func await(ctx context.Context, job *Job[summarised], started bool) bool {
	timeout := otherTimeout
	if started {
		timeout = ownTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-job.Done():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// AfterReply summarises in the background if the window is over 80 % full. f must hold the session's messages, including
// the reply. The job owns f from now on.
func (s *Summaries) AfterReply(owner conversation.Owner, f *prompt.Fit) {
	if !f.Summarises() || !f.LacksEarlier() && len(window.PlanSummary(f.Input())) == 0 {
		return
	}
	s.worker.Enqueue(f.Session.ID, func(ctx context.Context) summarised { return s.run(ctx, owner, f, window.PlanSummary) })
}

// overduePieces returns the batches that a turn must summarise before it calls the model.
func overduePieces(in window.Input) []window.Batch { return window.Plan(in).SummariseFirst }

// run summarises the due batches, with one call to the model for each. Before the batches, it summarises messages that
// are older than f.Messages. At the end, f has the newest summary.
func (s *Summaries) run(ctx context.Context, owner conversation.Owner, f *prompt.Fit, due func(window.Input) []window.Batch) summarised {
	err := s.catchUp(ctx, owner, f)
	var pieces []window.Batch // due batches that are not summarised yet
	for call := 0; err == nil && call < callsPerJob; call++ {
		var p *piece
		switch {
		case f.LacksEarlier():
			p, err = s.earlierPiece(ctx, owner, f)
		default:
			if pieces == nil {
				pieces = due(f.Input())
			}
			if len(pieces) > 0 {
				p, err = s.knownPiece(ctx, owner, f, pieces[0])
				pieces = pieces[1:]
			}
		}
		if err != nil || p == nil {
			break
		}
		err = s.summarisePiece(ctx, owner, f, p)
	}
	if errors.Is(err, conversation.ErrStale) {
		err = s.catchUp(ctx, owner, f) // another node stored its summary first
	}
	if err != nil && !errors.Is(err, conversation.ErrStale) && !errors.Is(err, conversation.ErrSessionNotFound) && ctx.Err() == nil {
		s.Log.Warn("a session's old messages could not be summarised; the next reply tries again", "session", f.Session.ID, "error", err)
	}
	return summarised{f.Summary, err}
}

// catchUp makes f adopt the session's newest summary. The round trip to the store is cheap compared with a call to the
// model. catchUp returns ErrStale if the history was cleared after f was read.
func (s *Summaries) catchUp(ctx context.Context, owner conversation.Owner, f *prompt.Fit) error {
	session, summary, err := s.Store.Summary(ctx, owner, f.Session.ID)
	if err != nil {
		return err
	}
	if session.Cleared != f.Session.Cleared {
		return conversation.ErrStale
	}
	f.Adopt(summary)
	return nil
}

// summarisePiece makes the model write a new summary, and stores it in place of the old summary.
func (s *Summaries) summarisePiece(ctx context.Context, owner conversation.Owner, f *prompt.Fit, p *piece) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	old := f.Summary
	summary := conversation.Summary{Last: p.last, Count: old.Count + p.count, Text: old.Text, Tokens: old.Tokens}
	var usage conversation.Usage
	if len(p.messages) > 0 { // otherwise the piece has only messages that are never sent
		var err error
		if summary.Text, usage, err = s.write(ctx, owner.Account, f, p.messages); err != nil {
			return err
		}
		summary.Tokens = s.Count(summary.Text)
	}
	summary.Replaced = old.Weighed().Tokens + p.tokens
	err := s.Viewers.ShowSummary(f.Session.ID, summary, p.count, func() error {
		return s.Store.SaveSummary(ctx, owner, f.Session.ID, old.Last, summary, usage)
	})
	if err == nil {
		f.Summary = summary
	}
	return err
}
