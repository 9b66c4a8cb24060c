package embedded

import (
	"context"
	"errors"
	"slices"
	"strings"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
	"parley/stream"
)

// Context implements conversation.Store.
func (s *Store) Context(ctx context.Context, owner conversation.Owner, sessionID string, tokens int) (conversation.Context, error) {
	var found conversation.Context
	err := s.withText(func() (streaming *conversation.Message, err error) {
		if err := s.view(ctx, func(r *reading) error {
			at := ref{owner, sessionID}
			session, err := r.session(at)
			if err != nil {
				return err
			}
			found, err = r.context(at, &session, tokens)
			return err
		}); err != nil {
			return nil, err
		}
		if n := len(found.History); n > 0 && found.History[n-1].Status == stream.Streaming {
			streaming = &found.History[n-1]
		}
		return streaming, nil
	})
	if err == nil {
		err = s.chargeEmbedding(ctx, &found, tokens)
	}
	if err != nil {
		return conversation.Context{}, err
	}
	return found, nil
}

// chargeEmbedding charges the embedding of a new message to the limit of tokens a minute. It charges nothing if the index has
// no embeddings, because the caller then does not embed the message. tokens is the size of the message.
func (s *Store) chargeEmbedding(ctx context.Context, found *conversation.Context, tokens int) error {
	a := auth.AdmissionOf(ctx)
	embeds := slices.ContainsFunc(found.Index, func(x conversation.Indexed) bool { return x.Vector != nil })
	if a == nil || !embeds {
		return nil
	}
	_, err := s.limits.reserve(a, found.Session.UserID, tokens)
	return err
}

// context returns the data from which the prompt of a turn is planned: the session, the summary, the history and the index.
// tokens is the size of the turn's message.
func (r *reading) context(at ref, session *conversation.Session, tokens int) (c conversation.Context, err error) {
	config, budget := session.Context, session.Window().Budget()
	c.Session = *session
	if c.Summary, err = r.summary(at); err != nil {
		return c, err
	}
	if c.History, err = r.history(at, session, budget); err != nil {
		return c, err
	}
	full := session.HistoryTokens+tokens+window.MessageOverhead > budget
	if session.LiveReply != "" && config.RetentionPolicy == conversation.Priority {
		full = true // the live reply may fill the window
	}
	if full && config.CompressionEnabled {
		expected := min(session.MessageCount, conversation.IndexLimit)
		if config.RetentionPolicy == conversation.FIFO {
			expected = 1 // few sessions have several system messages
		}
		c.Index, err = r.indexed(at, expected)
	}
	return c, err
}

// history returns messages, oldest first: the newest ones that fit into the budget (in tokens) and into
// conversation.HistoryBytes, and the next older message, which does not fit. The messages lack the fields that
// readForPrompt leaves out.
func (r *reading) history(at ref, session *conversation.Session, budget int) ([]conversation.Message, error) {
	count := session.MessageCount
	expected := count * budget / max(session.HistoryTokens, 1) // if the messages have about the same size
	newest := slices.Grow([]conversation.Message(nil), min(expected+expected/8+2, count))
	unanswered := false // the message that was read last is such a reply
	bytes := conversation.HistoryBytes
	messages, q := r.span(messagesBucket, r.sessionKey(at)), newSequence(at, false, count)
	id, value, ok := messages.before("")
	for ; ok && budget >= 0 && bytes >= 0; id, value, ok = messages.prev() {
		q.follow(value, id)
		m, err := readForPrompt(value, at.session, string(id))
		if err != nil {
			return nil, err
		}
		newest = append(newest, m)
		switch tokens := m.TokensInPrompt(); {
		case m.Status == stream.Streaming: // its text is not in the record
		case unanswered || tokens == 0:
			budget -= window.MessageOverhead
		default:
			budget -= tokens
		}
		unanswered = m.Unanswered()
		bytes -= recordBytes(value)
	}
	if !ok {
		q.end(count)
	}
	slices.Reverse(newest)
	return newest, nil
}

// indexed returns the newest indexed messages, at most conversation.IndexLimit, oldest first. expected is their likely number.
func (r *reading) indexed(at ref, expected int) ([]conversation.Indexed, error) {
	var newest []conversation.Indexed
	var ids strings.Builder // the ids share memory, and so do the terms
	var reader record.IndexedReader[[]byte]
	index := r.span(indexBucket, r.sessionKey(at))
	for id, value, ok := index.before(""); ok && len(newest) < conversation.IndexLimit; id, value, ok = index.prev() {
		if newest == nil {
			newest = make([]conversation.Indexed, 0, expected)
			ids.Grow(cap(newest) * len(id))
		}
		ids.Write(id)
		x, err := readIndexed(value, ids.String()[ids.Len()-len(id):], &reader)
		if err != nil {
			return nil, err
		}
		newest = append(newest, x)
	}
	slices.Reverse(newest)
	return newest, nil
}

// index adds a message to the index. Sessions with the policy fifo index only system messages.
func (w *writing) index(at ref, session *conversation.Session, m *conversation.Message) error {
	policy := session.Context.RetentionPolicy
	if policy == conversation.FIFO && m.Role != conversation.System {
		return nil
	}
	x := conversation.Index(m, policy)
	return w.putIndexed(messageKey(at, m.ID), &x)
}

// indexOnlySystem removes the entries of a session's index that are not those of system messages.
func (w *writing) indexOnlySystem(at ref) error {
	var reader record.IndexedReader[[]byte]
	_, err := w.removeEach(indexBucket, at, func(id, value []byte) (bool, error) {
		x, err := readIndexed(value, string(id), &reader)
		return x.Role == conversation.System, err
	})
	return err
}

// SetVectors implements conversation.Store.
func (s *Store) SetVectors(ctx context.Context, owner conversation.Owner, sessionID string, vectors []conversation.ExchangeVector) error {
	_, err := update(ctx, s, func(w *writing) (struct{}, error) {
		return struct{}{}, w.setVectors(ref{owner, sessionID}, vectors)
	})
	return err
}

func (w *writing) setVectors(at ref, vectors []conversation.ExchangeVector) error {
	if err := w.mayGrow(); err != nil {
		return err
	}
	session, err := w.session(at)
	switch {
	case errors.Is(err, conversation.ErrSessionNotFound):
		return nil
	case err != nil || session.Context.RetentionPolicy != conversation.Semantic:
		return err
	}
	for _, v := range vectors {
		key := messageKey(at, v.Reply)
		value := w.bucket(indexBucket).Get(key)
		if value == nil {
			continue
		}
		x, err := readIndexed(value, v.Reply, new(record.IndexedReader[[]byte]))
		if err != nil {
			return err
		}
		x.Vector = v.Vector
		if err := w.putIndexed(key, &x); err != nil {
			return err
		}
	}
	return nil
}

// summary returns the summary of a session. If the session has no summary, it returns the zero value.
func (r *reading) summary(at ref) (conversation.Summary, error) {
	return readSummary(r.bucket(summariesBucket).Get(r.sessionKey(at)))
}

// Summary implements conversation.Store.
func (s *Store) Summary(ctx context.Context, owner conversation.Owner, sessionID string) (session conversation.Session, summary conversation.Summary, err error) {
	err = s.view(ctx, func(r *reading) (err error) {
		at := ref{owner, sessionID}
		if session, err = r.session(at); err != nil {
			return err
		}
		summary, err = r.summary(at)
		return err
	})
	return session, summary, err
}

// SaveSummary implements conversation.Store. It causes no sweep for the bytes of the old summary, because the old summary reveals
// no more than the messages, which are still stored.
func (s *Store) SaveSummary(ctx context.Context, owner conversation.Owner, sessionID, after string, summary conversation.Summary, usage conversation.Usage) error {
	user, err := update(ctx, s, func(w *writing) (string, error) {
		return w.saveSummary(ref{owner, sessionID}, after, &summary, &usage)
	})
	if err == nil {
		s.limits.charge(userOf{owner, user}, usage.Total)
	}
	return err
}

// saveSummary stores a summary, and returns the user of the session.
func (w *writing) saveSummary(at ref, after string, summary *conversation.Summary, usage *conversation.Usage) (user string, err error) {
	if err := w.mayGrow(); err != nil {
		return "", err
	}
	session, err := w.session(at)
	if err != nil {
		return "", err
	}
	before, err := w.summary(at)
	if err != nil {
		return "", err
	}
	if before.Last != after || summary.Last <= after || summary.Last <= session.Cleared {
		return "", conversation.ErrStale
	}
	if err := w.putSummary(at, summary); err != nil {
		return "", err
	}
	session.TokenUsage.Prompt += usage.Prompt
	session.TokenUsage.Completion += usage.Completion
	session.TokenUsage.Total += usage.Total
	if err := w.putSession(at, &session); err != nil {
		return "", err
	}
	return session.UserID, w.count(at.owner, momentHour(w.now), conversation.UsageOfSummary(*usage))
}
