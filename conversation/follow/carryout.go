package follow

import (
	"context"
	"errors"
	"strings"
	"time"

	"parley/conversation"
	"parley/stream"
)

// carryOut carries out the actions that decide returned. turn and reply are the turn and the reply of x at the time of
// the decision.
func (f *Follower) carryOut(ctx context.Context, x *session, do actions, turn Turn, reply *stream.Reply) error {
	if do.gone != 0 {
		f.end(x, do.gone)
		return nil
	}
	if do.clear != "" {
		f.options.Hub.Clear(x.id, do.clear)
	}
	if do.summary != nil {
		f.options.Hub.NotifySummarised(x.id, *do.summary)
	}
	if do.stop != nil {
		turn.Stop(do.stop)
	}
	if reply != nil {
		reply.Append(do.text)
	}
	if do.end {
		if err := f.endReply(ctx, x, reply); err != nil {
			return err
		}
	}
	if do.catchUp {
		return f.catchUp(ctx, x)
	}
	return nil
}

// end stops following a session that is gone, and shows viewers the event how: stream.Deleted or stream.Expired.
func (f *Follower) end(x *session, how stream.EventKind) {
	f.options.Gone(x.id)
	f.options.Hub.Remove(x.id, how)
	f.mu.Lock()
	defer f.mu.Unlock()
	if x.writes() {
		x.turn.Stop(stream.ErrCancelled)
	}
	if x.reply != nil {
		x.reply.End(stream.Ending{State: stream.Cancelled})
	}
	f.dropLocked(x)
}

// endReply shows the ending of another node's reply.
func (f *Follower) endReply(ctx context.Context, x *session, reply *stream.Reply) error {
	f.mu.Lock()
	cleared := x.state.cleared
	f.mu.Unlock()
	// This ending is for a cleared or deleted reply. Viewers see the clear or the deletion instead.
	ending := stream.Ending{State: stream.Cancelled}
	m, err := f.options.Store.Message(ctx, x.owner, x.id, reply.ID)
	switch {
	case errors.Is(err, conversation.ErrMessageNotFound) && reply.ID > cleared: // a fail-over has lost the reply
		m = conversation.Message{ID: reply.ID, SessionID: x.id, Role: conversation.Assistant, Content: textOf(reply),
			CreatedAt: conversation.TimeOf(time.Now())}
		lost := m.AsLost()
		ending = lost.Ending()
	case errors.Is(err, conversation.ErrMessageNotFound), errors.Is(err, conversation.ErrSessionNotFound):
	case err != nil:
		return err
	case m.Status == stream.Streaming:
		return nil // the update was from before the reply began
	default:
		if rest, ok := strings.CutPrefix(m.Content, textOf(reply)); ok {
			reply.Append([]byte(rest))
		}
		ending = m.Ending()
	}
	reply.End(ending)
	x.topic.ScheduleTrim()
	f.mu.Lock()
	defer f.mu.Unlock()
	x.reply, x.state.remote = nil, ""
	return nil
}

func textOf(reply *stream.Reply) string {
	text, _ := reply.Snapshot()
	return text
}

// catchUp shows the messages that other nodes have written since the last catchUp.
func (f *Follower) catchUp(ctx context.Context, x *session) error {
	page, err := f.options.Store.Messages(ctx, x.owner, x.id, conversation.MessageQuery{Limit: catchUpLimit + 1})
	if errors.Is(err, conversation.ErrSessionNotFound) {
		return nil // the next poll returns Gone
	}
	if err != nil || !f.show(x, page) {
		return err
	}
	// The page has another node's live reply. Follow registers this node, so that each journal tick sends a wake-up to
	// this node.
	if _, err := f.options.Nodes.Follow(ctx, x.owner, x.id); err != nil && !errors.Is(err, conversation.ErrSessionNotFound) {
		return err
	}
	f.Notify(x.id) // the poll then reads the text that was journalled before
	return nil
}

// show shows the new messages of a page to the viewers on this node. It reports whether the page has a live reply of
// another node.
func (f *Follower) show(x *session, page conversation.MessagePage) (live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.options.Beginning(x.id) { // the live reply may belong to this node; then its turn shows it
		f.retries[x.id] = struct{}{}
		return false
	}
	previous, missed := newer(page, x.state.head)
	var entries []*stream.Entry
	for i := range missed {
		m := &missed[i]
		if x.writes() && m.ID >= x.turn.MessageID() {
			break // this node's own turn shows this message and its reply
		}
		entry := m.Entry()
		if m.Status == stream.Streaming {
			entry.Reply = stream.NewReply(m.ID)
			entry.Reply.Append([]byte(m.Content))
			x.reply, x.state.remote, live = entry.Reply, m.ID, true
			x.due = time.Now().Add(pollLive)
		}
		entries, x.state.head = append(entries, entry), m.ID
	}
	if len(entries) > 0 {
		x.topic.Publish(previous, entries...)
	}
	return live
}
