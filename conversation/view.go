package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"

	"parley/stream"
)

// ErrNoPosition says that a client wants a view to begin after something that the session never had.
var ErrNoPosition = errors.New("the position lies ahead of all that the session ever had")

// CheckPosition returns ErrNoPosition if nobody can have seen the session as far as the position says: the message lies ahead
// of the newest, or the offset behind the text of a message that will not change. A position between messages is good, and so is
// one in a reply that is live, or was interrupted: its viewers may have seen more than was journalled (design section 4).
// It is for positions that clients name, before View.
func (s *Service) CheckPosition(ctx context.Context, owner Owner, sessionID string, p stream.Position) error {
	session, err := s.Store.Session(ctx, owner, sessionID)
	if err != nil {
		return err
	}
	if p.ID > session.Head {
		return ErrNoPosition
	}
	if p.Ended || p.Offset == 0 || p.ID == session.LiveReply {
		return nil
	}
	m, err := s.Store.Message(ctx, owner, session.ID, p.ID)
	switch {
	case errors.Is(err, ErrMessageNotFound):
		return nil
	case err != nil:
		return err
	case m.Status != stream.Streaming && m.Status != stream.Interrupted && p.Offset > len(m.Content):
		return ErrNoPosition
	}
	return nil
}

// View subscribes to a session's events: after a position, or from now on if it is nil. It returns the viewer, where
// it begins, and whether everything after the position is still there; where the history was cleared meanwhile, the
// view begins after that. The caller closes the viewer. wake is as for stream.Hub.Subscribe.
func (s *Service) View(ctx context.Context, owner Owner, sessionID string, from *stream.Position, wake func()) (*stream.Viewer, stream.Position, bool, error) {
	// Subscribing precedes reading the session, so that there is no gap between the two.
	viewer := s.hub.Subscribe(sessionID, history{s, owner}, wake)
	session, err := s.watch(ctx, owner, sessionID)
	if err != nil {
		viewer.Close()
		return nil, stream.Position{}, false, err
	}
	position, recovered := s.now(session), true
	if from != nil {
		position, recovered = *from, from.ID >= session.Cleared
		if !recovered {
			position = stream.After(session.Cleared)
		}
	}
	viewer.Start(position)
	return viewer, position, recovered, nil
}

// watch returns a session that a viewer here has subscribed to; what other nodes do in it, the viewer is shown too.
func (s *Service) watch(ctx context.Context, owner Owner, sessionID string) (Session, error) {
	if s.follower == nil {
		return s.Store.Session(ctx, owner, sessionID)
	}
	session, err := s.Nodes.Follow(ctx, owner, sessionID)
	if err == nil {
		s.follower.view(owner, session)
	}
	return session, err
}

// awaitEnd returns a reply that another node is writing, once it has ended: as a viewer that waits for its end.
func (s *Service) awaitEnd(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error) {
	wake := make(chan struct{}, 1)
	from := stream.Position{ID: messageID, Offset: math.MaxInt} // beyond its text
	viewer, _, _, err := s.View(ctx, owner, sessionID, &from, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return Message{}, err
	}
	defer viewer.Close()
	for {
		event, ok, err := viewer.Next(ctx)
		switch {
		case err != nil:
			return Message{}, err
		case !ok:
			select {
			case <-wake:
			case <-ctx.Done():
				return Message{}, ctx.Err()
			}
		case event.Kind == stream.ContextSummarised:
		case event.Kind != stream.Created && event.Kind != stream.Delta || event.Entry.ID > messageID:
			return s.Store.Message(ctx, owner, sessionID, messageID)
		}
	}
}

// now returns the position after all that the session holds.
func (s *Service) now(session Session) stream.Position {
	if session.LiveReply == "" {
		return after(session.Head)
	}
	reply := s.hub.Reply(session.ID, session.LiveReply)
	if reply == nil { // it has only just begun
		return stream.After(session.LiveMessage)
	}
	text, ending := reply.Snapshot()
	return stream.Position{ID: session.LiveReply, Offset: len(text), Ended: ending != nil}
}

// history is what a viewer reads that is further behind than memory reaches.
type history struct {
	service *Service
	owner   Owner
}

// EntriesFrom implements stream.History.
func (h history) EntriesFrom(ctx context.Context, topic, id string, inclusive bool, limit int) ([]*stream.Entry, error) {
	page, err := h.service.Store.Messages(ctx, h.owner, topic, MessageQuery{
		From: id, Inclusive: inclusive, Ascending: true, Limit: limit,
	})
	if errors.Is(err, ErrSessionNotFound) {
		return nil, nil // the topic is told so itself
	}
	if err != nil {
		return nil, err
	}
	entries := make([]*stream.Entry, 0, len(page.Messages))
	for _, m := range page.Messages {
		if page.Session.LiveReply != "" && m.ID >= page.Session.LiveMessage {
			break // a turn that is live: its topic shows both messages, and not before its caller was told
		}
		entries = append(entries, entryOf(m))
	}
	return entries, nil
}

// entryOf returns a message that will not change any more as viewers see it.
func entryOf(m Message) *stream.Entry {
	if m.Role != Assistant {
		return &stream.Entry{ID: m.ID, Created: encode(m)}
	}
	return &stream.Entry{
		ID: m.ID, Created: encode(asBegun(m)),
		Reply: stream.EndedReply(m.ID, m.Content, endingOf(m)),
	}
}

// asBegun returns a reply as it was when it began.
func asBegun(m Message) Message {
	return Message{ID: m.ID, SessionID: m.SessionID, Role: m.Role, CreatedAt: m.CreatedAt, Status: stream.Streaming}
}

// endingOf returns how a reply that is over ended.
func endingOf(m Message) stream.Ending {
	ending := stream.Ending{State: m.Status, Message: encode(m)}
	if m.Error != nil {
		ending.Error = encode(m.Error)
	}
	return ending
}

// encode returns v as JSON, without the escapes that only HTML needs; v is a plain struct, whose metadata was valid JSON
// when it was taken in.
func encode(v any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}
