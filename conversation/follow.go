package conversation

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"parley/stream"
)

const (
	// glanceLive is how often a session with a live reply is glanced at, and glanceIdle any other one that is watched, if
	// no poke comes first (design section 7).
	glanceLive = time.Second
	glanceIdle = 5 * time.Second
	// glanceAgain is how soon a glance that failed is tried again.
	glanceAgain = 250 * time.Millisecond
	// caughtUpAtOnce is how many messages that other nodes have written are shown from memory; viewers that are further
	// behind read history.
	caughtUpAtOnce = 8
)

// follower follows the sessions that this node watches: what other nodes do in them it shows to the viewers here, and
// what they want of the turns here it does. It has one goroutine, which glances at all sessions that are due in one
// trip.
type follower struct {
	// static
	service *Service
	nodes   Nodes
	wake    chan struct{} // holds one

	mu       sync.Mutex
	sessions map[string]*followed // guarded by mu; by id
	poked    map[string]struct{}  // guarded by mu; those to glance at now
	failing  bool                 // owned by the goroutine
}

// followed is a session that is watched: it has viewers here, or a turn.
type followed struct {
	// static
	owner Owner
	id    string
	topic *stream.Topic // held

	// guarded by follower.mu
	due     time.Time
	expires Time
	cleared string
	head    string        // the newest message that the topic was shown, or that came before it was followed
	reply   *stream.Reply // live on another node; nil for none
	turn    *turn         // live here, or the last that was; nil for none
	summary Summary       // the newest of which viewers know here, without its text
	glanced bool          // whether it was glanced at, so that summary says something
}

func newFollower(s *Service) *follower {
	return &follower{
		service: s, nodes: s.Nodes, wake: make(chan struct{}, 1),
		sessions: make(map[string]*followed), poked: make(map[string]struct{}),
	}
}

// poke has a session glanced at, or all of them if it is "". It does not wait.
func (f *follower) poke(sessionID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sessionID == "" {
		for id := range f.sessions {
			f.poked[id] = struct{}{}
		}
	} else if f.sessions[sessionID] != nil {
		f.poked[sessionID] = struct{}{}
	}
	f.alert()
}

func (f *follower) alert() {
	select {
	case f.wake <- struct{}{}:
	default: // it has been told already
	}
}

// view follows a session that has a viewer here, who has subscribed to its topic already.
func (f *follower) view(owner Owner, session Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.open(owner, session)
	if x.head != session.Head || x.cleared != session.Cleared {
		f.poked[x.id] = struct{}{}
		f.alert()
	}
}

// begin follows the session of a turn that begins here.
func (f *follower) begin(t *turn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.open(t.key.Owner, t.begun.Session)
	x.turn, x.head, x.due = t, t.key.ReplyID, time.Now().Add(glanceLive)
}

// open returns the session as it is followed; called with mu held.
func (f *follower) open(owner Owner, session Session) *followed {
	x := f.sessions[session.ID]
	if x == nil {
		x = &followed{
			owner: owner, id: session.ID, topic: f.service.hub.Open(session.ID), expires: session.ExpiresAt,
			cleared: session.Cleared, due: time.Now().Add(glanceIdle),
		}
		if session.LiveReply == "" {
			x.head = session.Head
		}
		f.sessions[session.ID] = x
	}
	return x
}

// run follows until ctx is done.
func (f *follower) run(ctx context.Context) {
	tick := time.NewTicker(glanceLive)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			f.close()
			return
		case <-f.wake:
		case <-tick.C:
			all = true
		}
		f.glance(ctx, f.due(all))
	}
}

// close lets all sessions go.
func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, x := range f.sessions {
		x.topic.Close()
		delete(f.sessions, id)
	}
}

// due returns the sessions that were poked, and if all also those whose time has come. Those that nobody needs any more are let go.
func (f *follower) due(all bool) []*followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var due []*followed
	take := func(x *followed) {
		if x.isLive() {
			x.due = time.Now().Add(glanceLive)
		} else {
			x.due = time.Now().Add(glanceIdle)
		}
		due = append(due, x)
	}
	for id := range f.poked {
		if x := f.sessions[id]; x != nil {
			take(x)
		}
		delete(f.poked, id)
	}
	if !all {
		return due
	}
	now := time.Now()
	for id, x := range f.sessions {
		switch {
		case x.turn.isOver() && x.topic.HasOneHolder():
			x.topic.Close()
			delete(f.sessions, id)
		case !now.Before(x.due) || !now.Before(x.expires.Go()):
			take(x)
		}
	}
	return due
}

func (x *followed) isLive() bool { return x.reply != nil || !x.turn.isOver() }

// isOver reports whether there is no such turn here, or none any more.
func (t *turn) isOver() bool {
	if t == nil {
		return true
	}
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// glance looks at sessions, and does what that asks for.
func (f *follower) glance(ctx context.Context, due []*followed) {
	if len(due) == 0 {
		return
	}
	watched := make([]Followed, len(due))
	f.mu.Lock()
	for i, x := range due {
		watched[i] = Followed{Owner: x.owner, SessionID: x.id}
		if x.reply != nil {
			text, _ := x.reply.Snapshot()
			watched[i].Reply, watched[i].Offset = x.reply.ID, len(text)
		}
	}
	f.mu.Unlock()
	glances, err := f.nodes.Poll(ctx, watched)
	if f.told(ctx, err) {
		for _, x := range due {
			f.again(x)
		}
		return
	}
	for i, x := range due {
		if err := f.apply(ctx, x, &glances[i]); f.told(ctx, err) {
			f.again(x)
		}
	}
}

// told reports whether there is an error; the log is told of the first of a row.
func (f *follower) told(ctx context.Context, err error) bool {
	if err != nil && !f.failing && ctx.Err() == nil {
		f.service.Log.Error("other nodes' replies cannot be followed; it is tried again until they can", "error", err)
	}
	f.failing = err != nil
	return f.failing
}

// again has a session glanced at soon.
func (f *follower) again(x *followed) {
	time.AfterFunc(glanceAgain, func() { f.poke(x.id) })
}

// apply does what a glance asks for.
func (f *follower) apply(ctx context.Context, x *followed, g *Update) error {
	f.mu.Lock()
	t, reply, head := x.turn, x.reply, x.head
	isNew := !g.Gone && g.Session.Cleared > x.cleared
	if isNew {
		x.cleared = g.Session.Cleared
		x.summary.Count = 0
	}
	f.mu.Unlock()
	if g.Gone {
		f.gone(x, g.At)
		return nil
	}
	if isNew {
		f.service.hub.Clear(x.id, g.Session.Cleared)
	}
	f.folded(x, g.Summary)
	if !t.isOver() {
		t.heed(g)
	}
	switch {
	case reply == nil:
	case g.Session.LiveReply == reply.ID:
		reply.Append(g.Text)
	default:
		if err := f.end(ctx, x, reply, g.Session.Cleared); err != nil {
			return err
		}
	}
	if g.Session.Head != head && (t.isOver() || g.Session.Fence > t.key.Fence) {
		return f.catchUp(ctx, x)
	}
	return nil
}

// folded tells the viewers of a summary that is newer than the one that they know of. What there was before they came is
// no news to them.
func (f *follower) folded(x *followed, summary Summary) {
	f.mu.Lock()
	before, known := x.summary, x.glanced
	isNew := summary.Last > before.Last
	if isNew {
		x.summary = summary
	}
	x.glanced = true
	f.mu.Unlock()
	if isNew && known {
		f.service.hub.NotifySummarised(x.id, summary.compression(max(summary.Count-before.Count, 0)))
	}
}

// folds notes a summary that this node is about to store and tells its viewers of itself; undo, that it did not come to that.
func (f *follower) folds(sessionID string, summary Summary) (undo func()) {
	if f == nil {
		return func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.sessions[sessionID]
	if x == nil || summary.Last <= x.summary.Last {
		return func() {}
	}
	before := x.summary
	x.summary = summary
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if x.summary == summary { // not if another node's, a newer one, was seen meanwhile: its viewers were told of it
			x.summary = before
		}
	}
}

// gone lets go of a session that at that moment was no more: deleted, or expired.
func (f *follower) gone(x *followed, at Time) {
	how := stream.Deleted
	if at >= x.expires {
		how = stream.Expired
	}
	f.service.stopFolding(x.id)
	f.service.hub.Remove(x.id, how)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !x.turn.isOver() {
		x.turn.cancel(stream.ErrCancelled)
	}
	if x.reply != nil {
		x.reply.End(stream.Ending{State: stream.Cancelled})
	}
	if f.sessions[x.id] == x {
		x.topic.Close()
		delete(f.sessions, x.id)
	}
}

// heed does what others want of a turn that is live here. A glance from before the turn began says nothing of it.
func (t *turn) heed(g *Update) {
	switch {
	case g.Session.Fence < t.key.Fence:
	case g.Session.Fence > t.key.Fence || g.Session.LiveReply != t.key.ReplyID:
		t.cancel(stream.ErrInterrupted) // this node was taken for dead: somebody has decided how the reply ends
	case g.Stop == StopCleared:
		t.cancel(errCleared)
	case g.Stop == StopCancelled:
		t.cancel(stream.ErrCancelled)
	}
}

// end ends a reply that another node has written. cleared is the last message that was.
func (f *follower) end(ctx context.Context, x *followed, reply *stream.Reply, cleared string) error {
	ending := stream.Ending{State: stream.Cancelled} // of a reply that was cleared: viewers are shown that
	m, err := f.service.Store.Message(ctx, x.owner, x.id, reply.ID)
	switch {
	case errors.Is(err, ErrMessageNotFound) && reply.ID > cleared: // a fail-over of the store has lost it
		ending = endingOf(lost(Message{ID: reply.ID, SessionID: x.id, Role: Assistant, Content: string(textOf(reply)), CreatedAt: TimeOf(time.Now())}))
	case errors.Is(err, ErrMessageNotFound), errors.Is(err, ErrSessionNotFound):
	case err != nil:
		return err
	case m.Status == stream.Streaming:
		return nil // the glance was older than the reply
	default:
		if rest, ok := bytes.CutPrefix([]byte(m.Content), textOf(reply)); ok {
			reply.Append(rest)
		}
		ending = endingOf(m)
	}
	reply.End(ending)
	x.topic.ScheduleTrim()
	f.mu.Lock()
	defer f.mu.Unlock()
	x.reply = nil
	return nil
}

func textOf(reply *stream.Reply) []byte {
	text, _ := reply.Snapshot()
	return text
}

// catchUp shows what other nodes have written since the last time.
func (f *follower) catchUp(ctx context.Context, x *followed) error {
	page, err := f.service.Store.Messages(ctx, x.owner, x.id, MessageQuery{Limit: caughtUpAtOnce + 1})
	if errors.Is(err, ErrSessionNotFound) {
		return nil // the next glance says so
	}
	if err != nil || !f.show(x, page) {
		return err
	}
	// The node that writes the reply is told that this one watches, so that each tick of its journal pokes it.
	if _, err := f.nodes.Follow(ctx, x.owner, x.id); err != nil && !errors.Is(err, ErrSessionNotFound) {
		return err
	}
	f.poke(x.id) // for what it has written already
	return nil
}

// show shows what is new of a page to the viewers here. It reports whether there is a live reply.
func (f *follower) show(x *followed, page MessagePage) (live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.service.isBeginning(x.id) { // what is live may be this node's own, which shows it itself
		f.again(x)
		return false
	}
	previous, missed := newer(page, x.head)
	var entries []*stream.Entry
	for _, m := range missed {
		if !x.turn.isOver() && m.ID >= x.turn.begun.Message.ID {
			break // this node's own: it shows them itself
		}
		entry := entryOf(m)
		if m.Status == stream.Streaming {
			entry.Reply = stream.NewReply(m.ID)
			entry.Reply.Append([]byte(m.Content))
			x.reply, live = entry.Reply, true
			x.due = time.Now().Add(glanceLive)
		}
		entries, x.head = append(entries, entry), m.ID
	}
	if len(entries) > 0 {
		x.topic.Publish(previous, entries...)
	}
	return live
}

// newer returns the messages of a page, which begins with the newest, that come after head, oldest first, and what comes
// before them.
func newer(page MessagePage, head string) (previous string, messages []Message) {
	all := page.Messages
	for i, m := range all {
		if m.ID <= head {
			return head, reversed(all[:i])
		}
	}
	if page.More && len(all) > 0 { // there are more than the page holds: the oldest of it comes before the others
		last := len(all) - 1
		return all[last].ID, reversed(all[:last])
	}
	return max(head, page.Session.Cleared), reversed(all)
}

func reversed(messages []Message) []Message {
	out := make([]Message, 0, len(messages))
	for i := len(messages) - 1; i >= 0; i-- {
		out = append(out, messages[i])
	}
	return out
}
