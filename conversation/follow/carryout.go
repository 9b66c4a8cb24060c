package follow

import (
	"bytes"
	"context"
	"errors"
	"time"

	"parley/conversation"
	"parley/stream"
)

// carryOut does what an update asks for. turn and reply are those that it was decided for.
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

// end lets go of a session that is gone: deleted, or expired.
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

// endReply shows how another node's reply ended.
func (f *Follower) endReply(ctx context.Context, x *session, reply *stream.Reply) error {
	f.mu.Lock()
	cleared := x.state.cleared
	f.mu.Unlock()
	ending := stream.Ending{State: stream.Cancelled} // of a reply that was cleared: viewers are shown that instead
	m, err := f.options.Store.Message(ctx, x.owner, x.id, reply.ID)
	switch {
	case errors.Is(err, conversation.ErrMessageNotFound) && reply.ID > cleared: // a fail-over has lost it
		m = conversation.Message{ID: reply.ID, SessionID: x.id, Role: conversation.Assistant, Content: string(textOf(reply)),
			CreatedAt: conversation.TimeOf(time.Now())}
		lost := m.AsLost()
		ending = lost.Ending()
	case errors.Is(err, conversation.ErrMessageNotFound), errors.Is(err, conversation.ErrSessionNotFound):
	case err != nil:
		return err
	case m.Status == stream.Streaming:
		return nil // the update was older than the reply
	default:
		if rest, ok := bytes.CutPrefix([]byte(m.Content), textOf(reply)); ok {
			reply.Append(rest)
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

func textOf(reply *stream.Reply) []byte {
	text, _ := reply.Snapshot()
	return text
}

// catchUp shows what other nodes have written since it was last called.
func (f *Follower) catchUp(ctx context.Context, x *session) error {
	page, err := f.options.Store.Messages(ctx, x.owner, x.id, conversation.MessageQuery{Limit: catchUpLimit + 1})
	if errors.Is(err, conversation.ErrSessionNotFound) {
		return nil // the next poll says so
	}
	if err != nil || !f.show(x, page) {
		return err
	}
	// There is a live reply. Its node learns that this one follows, so that each tick of its journal notifies this node.
	if _, err := f.options.Nodes.Follow(ctx, x.owner, x.id); err != nil && !errors.Is(err, conversation.ErrSessionNotFound) {
		return err
	}
	f.Notify(x.id) // for the text that is there already
	return nil
}

// show shows the new messages of a page to the viewers here. It reports whether one of them is a live reply.
func (f *Follower) show(x *session, page conversation.MessagePage) (live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.options.Beginning(x.id) { // a live reply may be this node's own, which its turn will show
		f.retries[x.id] = struct{}{}
		return false
	}
	previous, missed := newer(page, x.state.head)
	var entries []*stream.Entry
	for i := range missed {
		m := &missed[i]
		if x.writes() && m.ID >= x.turn.MessageID() {
			break // this node's own turn shows them
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
