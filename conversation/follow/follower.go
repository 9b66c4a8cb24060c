package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"parley/conversation"
	"parley/stream"
)

const (
	// Without wake-ups, a session with a live reply is polled every pollLive, and other sessions every pollIdle. Run
	// looks for due polls once a second, so a lost wake-up delays viewers by up to 2 s or 6 s. Most sessions are idle,
	// so they are polled less often.
	pollLive = time.Second
	pollIdle = 5 * time.Second
	// pollRetry is the delay before a failed poll is retried.
	pollRetry = 250 * time.Millisecond
	// catchUpLimit is the maximum number of other nodes' messages that are shown from memory. A topic keeps the same
	// number of messages.
	catchUpLimit = 8
)

// Options are the dependencies of a [Follower].
type Options struct {
	Store conversation.SessionStore
	Nodes conversation.Nodes // nil if other nodes cannot share the store; then the Follower follows nothing
	Hub   *stream.Hub
	// Beginning reports whether a turn of the session may be beginning on this node.
	Beginning func(sessionID string) bool
	// Gone is called when a poll finds that a session is gone.
	Gone func(sessionID string)
	Log  *slog.Logger
}

// Turn is a turn of this node.
type Turn interface {
	Key() conversation.TurnKey
	// MessageID returns the id of the message that the turn replies to.
	MessageID() string
	// Over reports whether the turn has ended and viewers see the ending.
	Over() bool
	// Stop tells the turn to stop, and does not wait.
	Stop(cause error)
}

// Follower shows sessions to viewers on this node. Methods may be called from any goroutine.
type Follower struct {
	options Options
	wake    chan struct{} // capacity 1; wakes Run

	mu       sync.Mutex
	sessions map[string]*session // guarded by mu; by id
	notified map[string]struct{} // guarded by mu; sessions to poll now

	// owned by Run
	retries map[string]struct{} // sessions to poll after pollRetry
	failing bool                // whether the last poll failed
}

// session is a session that this node follows.
type session struct {
	// static
	owner conversation.Owner
	id    string
	topic *stream.Topic // open while the session is followed

	// guarded by Follower.mu
	due   time.Time // time of the next poll
	state state
	reply *stream.Reply // the reply with the id state.remote; nil for none
	turn  Turn          // the newest turn of this node, maybe over; nil for none
}

// New returns a Follower. It follows other nodes only while Run runs.
func New(options Options) *Follower {
	return &Follower{
		options: options, wake: make(chan struct{}, 1),
		sessions: make(map[string]*session), notified: make(map[string]struct{}), retries: make(map[string]struct{}),
	}
}

// Notify makes Run poll a session soon, or all sessions if sessionID is "". It does not block.
func (f *Follower) Notify(sessionID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sessionID == "" {
		for id := range f.sessions {
			f.notified[id] = struct{}{}
		}
	} else if f.sessions[sessionID] != nil {
		f.notified[sessionID] = struct{}{}
	}
	f.wakeUp()
}

func (f *Follower) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default: // a wake-up is waiting already
	}
}

// Follow returns a session and, if other nodes share the store, follows it from now on. The caller must have subscribed
// to the session's topic already.
func (f *Follower) Follow(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	if f.options.Nodes == nil {
		return f.options.Store.Session(ctx, owner, sessionID)
	}
	found, err := f.options.Nodes.Follow(ctx, owner, sessionID)
	if err != nil {
		return found, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.openLocked(owner, found)
	if x.state.head != found.Head || x.state.cleared != found.Cleared {
		f.notified[x.id] = struct{}{}
		f.wakeUp()
	}
	return found, nil
}

// Began follows the session of a turn that has begun on this node. in is the session after the turn has begun.
func (f *Follower) Began(turn Turn, in conversation.Session) {
	if f.options.Nodes == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.openLocked(turn.Key().Owner, in)
	x.turn, x.state.head, x.due = turn, turn.Key().ReplyID, time.Now().Add(pollLive)
}

// openLocked returns the followed session with the id of in, and begins to follow it if necessary. The caller holds mu.
func (f *Follower) openLocked(owner conversation.Owner, in conversation.Session) *session {
	x := f.sessions[in.ID]
	if x == nil {
		x = &session{
			owner: owner, id: in.ID, topic: f.options.Hub.Open(in.ID), due: time.Now().Add(pollIdle),
			state: state{expires: in.ExpiresAt, cleared: in.Cleared},
		}
		if in.LiveReply == "" { // otherwise viewers have not seen the messages of the live turn
			x.state.head = in.Head
		}
		f.sessions[in.ID] = x
	}
	return x
}

// ShowSummary calls save. If save succeeds, it shows the summary to the session's viewers on this node. It records the
// summary before save, because a poll may find the summary before save returns, and must not show it again. added is
// the number of messages that the summary covers and the previous summary did not. ShowSummary returns the error of
// save.
func (f *Follower) ShowSummary(sessionID string, summary conversation.Summary, added int, save func() error) error {
	undo := f.noteSummary(sessionID, summary)
	if err := save(); err != nil {
		undo()
		return err
	}
	f.options.Hub.NotifySummarised(sessionID, summary.Stats(added))
	return nil
}

func (f *Follower) noteSummary(sessionID string, summary conversation.Summary) (undo func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.sessions[sessionID]
	if x == nil || summary.Last <= x.state.summary.Last {
		return func() {}
	}
	before := x.state.summary
	x.state.summary = summary
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if x.state.summary == summary { // otherwise a poll has found and shown a newer summary of another node
			x.state.summary = before
		}
	}
}

// Run polls the followed sessions until ctx is done. If Options.Nodes is nil, other nodes cannot share the store, and Run
// returns at once.
func (f *Follower) Run(ctx context.Context) {
	if f.options.Nodes == nil {
		return
	}
	tick := time.NewTicker(pollLive)
	defer tick.Stop()
	var retry <-chan time.Time // set while retries are waiting
	for {
		if retry == nil && len(f.retries) > 0 {
			retry = time.After(pollRetry)
		}
		var due []*session
		select {
		case <-ctx.Done():
			f.close()
			return
		case <-f.wake:
			due = f.takeNotified()
		case <-retry:
			retry, due = nil, f.takeRetries()
		case <-tick.C:
			due = append(f.takeNotified(), f.takeDue()...)
		}
		f.poll(ctx, due)
	}
}

// close stops following all sessions.
func (f *Follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.sessions {
		f.dropLocked(x)
	}
}

func (f *Follower) dropLocked(x *session) {
	if f.sessions[x.id] == x {
		x.topic.Close()
		delete(f.sessions, x.id)
	}
}

// takeNotified returns the sessions that got a wake-up, and schedules their next polls.
func (f *Follower) takeNotified() []*session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(f.notified)
}

func (f *Follower) takeRetries() []*session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(f.retries)
}

func (f *Follower) takeLocked(ids map[string]struct{}) (due []*session) {
	for id := range ids {
		if x := f.sessions[id]; x != nil {
			due = append(due, x.schedule())
		}
	}
	clear(ids)
	return due
}

// takeDue returns the sessions that are due for a poll, and the sessions with an expiry time in the past. It stops
// following sessions that have neither viewers nor a live turn on this node.
func (f *Follower) takeDue() (due []*session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, x := range f.sessions {
		if !x.writes() {
			x.turn = nil // a turn keeps its prompt in memory, and viewers may stay for a day
		}
		switch {
		case x.turn == nil && x.topic.HasOneHolder():
			f.dropLocked(x)
		case !now.Before(x.due) || !now.Before(x.state.expires.Go()):
			due = append(due, x.schedule())
		}
	}
	return due
}

// schedule sets the time of the session's next poll and returns the session.
func (x *session) schedule() *session {
	every := pollIdle
	if x.reply != nil || x.writes() {
		every = pollLive
	}
	x.due = time.Now().Add(every)
	return x
}

// writes reports whether a turn of this node is live in the session.
func (x *session) writes() bool { return x.turn != nil && !x.turn.Over() }

// poll polls sessions and carries out the actions. If the poll or an action fails for a session, the session is polled
// again after pollRetry.
func (f *Follower) poll(ctx context.Context, due []*session) {
	if len(due) == 0 {
		return
	}
	followed := make([]conversation.Followed, len(due))
	f.mu.Lock()
	for i, x := range due {
		followed[i] = conversation.Followed{Owner: x.owner, SessionID: x.id}
		if x.reply != nil {
			followed[i].Reply = x.reply.ID
			followed[i].Offset, _ = x.reply.Size()
		}
	}
	f.mu.Unlock()
	updates, err := f.options.Nodes.Poll(ctx, followed)
	if err != nil {
		for _, x := range due {
			f.retries[x.id] = struct{}{}
		}
		f.noteResult(ctx, err)
		return
	}
	for i, x := range due {
		failed := updates[i].Err
		if failed == nil {
			failed = f.update(ctx, x, &updates[i])
		}
		if failed != nil {
			f.retries[x.id], err = struct{}{}, failed
		}
	}
	f.noteResult(ctx, err)
}

// noteResult records whether the last round of polls succeeded. It logs the first of several failures in a row.
func (f *Follower) noteResult(ctx context.Context, err error) {
	if err != nil && !f.failing && ctx.Err() == nil {
		f.options.Log.Error("other nodes' replies cannot be followed; retrying", "error", err)
	}
	f.failing = err != nil
}

// update decides the actions for one update of a session, and carries them out.
func (f *Follower) update(ctx context.Context, x *session, u *conversation.Update) error {
	f.mu.Lock()
	turn, reply := x.turn, x.reply
	x.state.turn = conversation.TurnKey{}
	if x.writes() {
		x.state.turn = turn.Key()
	}
	var do actions
	x.state, do = decide(x.state, u)
	f.mu.Unlock()
	return f.carryOut(ctx, x, do, turn, reply)
}
