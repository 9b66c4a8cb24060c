package embedded

import (
	"context"
	"errors"

	"parley/conversation"
	"parley/stream"
)

// Messages implements conversation.Store. Its cost depends on the size of the page, not on the size of the history.
func (s *Store) Messages(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	var page conversation.MessagePage
	err := s.withText(func() (streaming *conversation.Message, err error) {
		page = conversation.MessagePage{}
		if err := s.view(ctx, func(r *reading) (err error) {
			at := ref{owner, sessionID}
			if page.Session, err = r.session(at); err != nil {
				return err
			}
			page.Session = page.Session.Short()
			page.Messages, page.More, err = r.messages(at, page.Session.MessageCount, query)
			return err
		}); err != nil {
			return nil, err
		}
		for i := range page.Messages {
			if page.Messages[i].Status == stream.Streaming {
				streaming = &page.Messages[i]
			}
		}
		return streaming, nil
	})
	if err != nil {
		return conversation.MessagePage{}, err
	}
	return page, nil
}

// messages returns a page of messages, with at most conversation.PageBytes. more reports whether further messages
// follow. count is the number of messages of the session.
func (r *reading) messages(at ref, count int, query conversation.MessageQuery) (page []conversation.Message, more bool, err error) {
	messages := r.span(messagesBucket, at.key())
	step := messages.prev
	id, value, ok := []byte(nil), []byte(nil), false
	switch {
	case query.Ascending:
		step = messages.next
		id, value, ok = messages.from(query.From)
		if ok && !query.Inclusive && string(id) == query.From {
			id, value, ok = step()
		}
	case query.Inclusive && query.From != "":
		id, value, ok = messages.from(query.From)
		if !ok || string(id) != query.From {
			id, value, ok = messages.before(query.From)
		}
	default:
		id, value, ok = messages.before(query.From)
	}
	q, bytes := r.sequence(at, &query, count), 0
	for ; ok; id, value, ok = step() {
		q.follow(value, id)
		bytes += recordBytes(value)
		if len(page) == query.Limit || len(page) > 0 && bytes > conversation.PageBytes {
			return page, true, nil
		}
		m, err := readMessage(value, at.session, string(id))
		if err != nil {
			return nil, false, err
		}
		page = append(page, m)
	}
	q.end(count)
	return page, false, nil
}

// Message implements conversation.Store.
func (s *Store) Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, error) {
	var m conversation.Message
	err := s.withText(func() (streaming *conversation.Message, err error) {
		if err := s.view(ctx, func(r *reading) (err error) {
			at := ref{owner, sessionID}
			if _, err := r.session(at); err != nil {
				return err
			}
			m, err = r.message(at, messageID)
			return err
		}); err != nil {
			return nil, err
		}
		if m.Status == stream.Streaming {
			streaming = &m
		}
		return streaming, nil
	})
	if err != nil {
		return conversation.Message{}, err
	}
	return m, nil
}

// withText calls read, which reads the database. If read returns a streaming reply, withText sets its content from the journal.
// The journal lacks a reply that has just ended or begun. Then withText reads the database and the journal again, up to three
// times in all.
func (s *Store) withText(read func() (streaming *conversation.Message, err error)) error {
	const tries = 3
	for try := 1; ; try++ {
		reply, err := read()
		if err != nil || reply == nil {
			return err
		}
		text, live := s.journal.text(reply.ID)
		if live || try == tries {
			reply.Content = text
			return nil
		}
	}
}

// MessagesByID implements conversation.Store.
func (s *Store) MessagesByID(ctx context.Context, owner conversation.Owner, sessionID string, ids []string) ([]conversation.Message, error) {
	var found []conversation.Message
	err := s.withText(func() (streaming *conversation.Message, err error) {
		found = make([]conversation.Message, 0, len(ids))
		if err := s.view(ctx, func(r *reading) (err error) {
			found, err = r.messagesByID(ref{owner, sessionID}, ids, found)
			return err
		}); err != nil {
			return nil, err
		}
		for i := range found {
			if found[i].Status == stream.Streaming {
				streaming = &found[i]
			}
		}
		return streaming, nil
	})
	return found, err
}

// messagesByID appends the messages with these ids to found. It skips ids that the session does not have.
func (r *reading) messagesByID(at ref, ids []string, found []conversation.Message) ([]conversation.Message, error) {
	if _, err := r.session(at); err != nil {
		return nil, err
	}
	for _, id := range ids {
		m, err := r.message(at, id)
		switch {
		case err == nil:
			found = append(found, m)
		case !errors.Is(err, conversation.ErrMessageNotFound):
			return nil, err
		}
	}
	return found, nil
}

// ClearMessages implements conversation.Store. A sweep overwrites the removed bytes soon after (see Scrubbed).
func (s *Store) ClearMessages(ctx context.Context, owner conversation.Owner, sessionID, name string) (conversation.Cleared, error) {
	return update(ctx, s, func(w *writing) (conversation.Cleared, error) {
		at := ref{owner, sessionID}
		session, err := w.session(at)
		if err != nil {
			return conversation.Cleared{}, err
		}
		if !w.mayTake(at, &session, name) {
			queued, err := w.enqueue(at, &session, waiter{name: name, interrupts: true})
			return conversation.Cleared{Queued: queued}, err
		}
		count, err := w.removeMessages(at, &session)
		if err != nil {
			return conversation.Cleared{}, err
		}
		mark := conversation.NewID(conversation.MessagePrefix, max(w.now, session.LastActivity), session.Head)
		session.Head, session.Cleared = mark, mark
		session.MessageCount, session.HistoryTokens = 0, 0
		if err := w.putSession(at, &session); err != nil {
			return conversation.Cleared{}, err
		}
		w.handOver(at)
		return conversation.Cleared{Count: count, Session: session.Short()}, nil
	})
}
