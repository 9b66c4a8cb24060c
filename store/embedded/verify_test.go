package embedded

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"parley/conversation"
	"parley/stream"
)

// verify checks that the buckets of the file are consistent with each other, and runs bbolt's check of the file.
func verify(t testing.TB, s *Store) {
	t.Helper()
	must(t, s.submit(context.Background(), func(w *writing) error { // as an operation, so that no write runs at the same time
		for err := range w.bolt.Check() {
			t.Errorf("the file: %v", err)
		}
		return errors.Join(w.verify(), w.verifyKeys(), w.verifyUsage(), w.verifyStored())
	}))
}

func (w *writing) verify() error {
	want := make(map[string]int) // by key: the number of buckets that must contain it
	err := w.bucket(sessionsBucket).ForEach(func(key, value []byte) error {
		owner, id, _ := cutOwner(key)
		at := ref{owner, string(id)}
		session, err := readSession(value, at.session)
		if err != nil {
			return err
		}
		want[string(userKey(owner, session.UserID))+session.ID]++
		want[string(expiryKey(session.ExpiresAt, at))]++
		if err := w.verifyContext(at, &session); err != nil {
			return err
		}
		var messages []conversation.Message
		for query, more := (conversation.MessageQuery{Ascending: true, Limit: 1 << 20}), true; more; {
			var page []conversation.Message
			if page, more, err = w.messages(at, session.MessageCount, query); err != nil {
				return err
			}
			if messages = append(messages, page...); more {
				query.From = page[len(page)-1].ID
			}
		}
		tokens, most, streaming, last := conversation.TokensInPrompts(messages), 0, "", ""
		for _, m := range messages {
			most += m.TokensInPrompt() // earlier versions also counted the messages to replies that failed without text
			want[string(messageKey(at, m.ID))]++
			if last = m.ID; m.Status == stream.Streaming {
				streaming = m.ID
			}
		}
		live := session.LiveReply != ""
		if live && session.ExpiresAt <= w.now { // the turn may already be settled
			live = w.bucket(liveBucket).Get(at.key()) != nil
		}
		if live {
			want[string(at.key())]++
			live, err := readLiveTurn(w.bucket(liveBucket).Get(at.key()))
			_, journalled := w.store.journal.text(session.LiveReply)
			if err != nil || live.ReplyID != session.LiveReply || live.Fence != session.Fence || !journalled {
				return fmt.Errorf("live turn %+v (%w), journalled: %t, of session %+v", live, err, journalled, session)
			}
		}
		if len(messages) != session.MessageCount || session.HistoryTokens < tokens || session.HistoryTokens > most || streaming != session.LiveReply ||
			last != session.Head && session.Cleared != session.Head {
			return fmt.Errorf("%d messages, %d tokens, %q streaming, %q last, in session %+v", len(messages), tokens, streaming, last, session)
		}
		return nil
	})
	for _, name := range []string{usersBucket, expiryBucket, messagesBucket, liveBucket} {
		err = errors.Join(err, w.bucket(name).ForEach(func(key, _ []byte) error {
			if want[string(key)] == 0 {
				return fmt.Errorf("%s has %q, which belongs to no session", name, key)
			}
			want[string(key)]--
			return nil
		}))
	}
	for name, of := range map[string]string{indexBucket: messagesBucket, summariesBucket: sessionsBucket} {
		err = errors.Join(err, w.bucket(name).ForEach(func(key, _ []byte) error {
			if w.bucket(of).Get(key) == nil {
				return fmt.Errorf("%s has %q without an entry in %s", name, key, of)
			}
			return nil
		}))
	}
	for key, n := range want {
		if n != 0 {
			err = errors.Join(err, fmt.Errorf("the key %q is missing", key))
		}
	}
	return err
}

// verifyContext checks that the summary and the index of a session are consistent with its messages.
func (w *writing) verifyContext(at ref, session *conversation.Session) error {
	if summary, err := w.summary(at); err != nil || summary != (conversation.Summary{}) && summary.Last <= session.Cleared {
		return fmt.Errorf("the summary %+v (%w) in session %+v", summary, err, session)
	}
	messages := w.span(messagesBucket, at.key())
	for id, value, ok := messages.from(""); ok; id, value, ok = messages.next() {
		m, err := readMessage(value, at.session, string(id))
		if err != nil {
			return err
		}
		want := session.Context.RetentionPolicy != conversation.FIFO && m.Status != stream.Streaming
		if session.Context.RetentionPolicy == conversation.FIFO && m.Role == conversation.System {
			continue // only turns of the present version index system messages
		}
		if has := w.bucket(indexBucket).Get(messageKey(at, m.ID)) != nil; has != want {
			return fmt.Errorf("message %s is indexed: %t, in session %+v", m.ID, has, session)
		}
	}
	return nil
}
