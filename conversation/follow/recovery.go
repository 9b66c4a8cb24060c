package follow

import (
	"context"
	"errors"
	"math"

	"parley/conversation"
	"parley/stream"
)

// CheckPosition returns conversation.ErrNoPosition if no viewer can have reached a position. Either its message is
// ahead of the newest message, or its offset is beyond the text of a message that will not change. A position between
// messages is valid. Any offset in a live or interrupted reply is valid too, because viewers may have seen more text
// than was journalled. Call CheckPosition before View for positions that come from clients.
func (f *Follower) CheckPosition(ctx context.Context, owner conversation.Owner, sessionID string, p stream.Position) error {
	session, err := f.options.Store.Session(ctx, owner, sessionID)
	if err != nil {
		return err
	}
	if p.ID > session.Head {
		return conversation.ErrNoPosition
	}
	if p.Ended || p.Offset == 0 || p.ID == session.LiveReply {
		return nil
	}
	m, err := f.options.Store.Message(ctx, owner, session.ID, p.ID)
	switch {
	case errors.Is(err, conversation.ErrMessageNotFound):
		return nil
	case err != nil:
		return err
	case m.Status != stream.Streaming && m.Status != stream.Interrupted && p.Offset > len(m.Content):
		return conversation.ErrNoPosition
	}
	return nil
}

// View subscribes to a session's events after the position from, or from now on if from is nil. It returns the viewer,
// the position at which the view begins, and whether all events after from still exist. If the history was cleared
// after from, the view begins after the clear. The caller must close the viewer. stream.Hub.Subscribe describes wake.
func (f *Follower) View(ctx context.Context, owner conversation.Owner, sessionID string, from *stream.Position, wake func()) (*stream.Viewer, stream.Position, bool, error) {
	// The viewer subscribes before Follow reads the session, so the viewer misses no change in between.
	viewer := f.options.Hub.Subscribe(sessionID, history{f.options.Store, owner}, wake)
	session, err := f.Follow(ctx, owner, sessionID)
	if err != nil {
		viewer.Close()
		return nil, stream.Position{}, false, err
	}
	position, recovered := f.positionNow(session), true
	if from != nil {
		position, recovered = *from, from.ID >= session.Cleared
		if !recovered {
			position = stream.After(session.Cleared)
		}
	}
	if from == nil && session.LiveReply == "" {
		viewer.StartAtEnd(position)
	} else {
		viewer.Start(position)
	}
	return viewer, position, recovered, nil
}

// AwaitEnd waits until a reply that another node writes has ended, and returns the reply. It subscribes to the session
// and waits for the event that ends the reply.
func (f *Follower) AwaitEnd(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	wake := make(chan struct{}, 1)
	from := stream.Position{ID: messageID, Offset: math.MaxInt} // so that the viewer gets no text
	viewer, _, _, err := f.View(ctx, owner, sessionID, &from, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return conversation.Message{}, err
	}
	defer viewer.Close()
	for {
		event, ok, err := viewer.Next(ctx)
		switch {
		case err != nil:
			return conversation.Message{}, err
		case !ok:
			select {
			case <-wake:
			case <-ctx.Done():
				return conversation.Message{}, ctx.Err()
			}
		case event.Kind == stream.ContextSummarised, event.Kind == stream.Reasoning:
		case event.Kind != stream.Created && event.Kind != stream.Delta || event.Entry.ID > messageID:
			return f.options.Store.Message(ctx, owner, sessionID, messageID)
		}
	}
}

// positionNow returns the position at the end of the session. If a reply is live, the position is after the text that
// this node has.
func (f *Follower) positionNow(session conversation.Session) stream.Position {
	if session.LiveReply == "" {
		return session.End()
	}
	reply := f.options.Hub.Reply(session.ID, session.LiveReply)
	if reply == nil { // the turn has begun, but is not shown yet
		return stream.After(session.LiveMessage)
	}
	size, ending := reply.Size()
	return stream.Position{ID: session.LiveReply, Offset: size, Ended: ending != nil}
}

// history lets viewers read messages that are no longer in memory.
type history struct {
	store conversation.SessionStore
	owner conversation.Owner
}

// EntriesFrom implements stream.History.
func (h history) EntriesFrom(ctx context.Context, topic, id string, inclusive bool, limit int) ([]*stream.Entry, error) {
	page, err := h.store.Messages(ctx, h.owner, topic, conversation.MessageQuery{
		From: id, Inclusive: inclusive, Ascending: true, Limit: limit,
	})
	if errors.Is(err, conversation.ErrSessionNotFound) {
		return nil, nil // the topic shows the session's end
	}
	if err != nil {
		return nil, err
	}
	entries := make([]*stream.Entry, 0, len(page.Messages))
	for i := range page.Messages {
		m := &page.Messages[i]
		if page.Session.LiveReply != "" && m.ID >= page.Session.LiveMessage {
			break // the topic shows the messages of a live turn, after the turn has been started
		}
		entries = append(entries, m.Entry())
	}
	return entries, nil
}
