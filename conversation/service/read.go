package service

import (
	"context"
	"time"

	"parley/conversation"
	"parley/conversation/prompt"
	"parley/conversation/usage"
	"parley/stream"
)

// Session returns a session, and the position from which a client should view it. The position is before the live reply
// if the session has one, otherwise after the newest message.
func (s *Service) Session(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, stream.Position, error) {
	session, err := s.Store.Session(ctx, owner, sessionID)
	switch {
	case err != nil:
		return conversation.Session{}, stream.Position{}, err
	case session.LiveReply != "":
		return session, stream.After(session.LiveMessage), nil
	}
	return session, session.End(), nil
}

// History returns a page of messages. If the page reaches the end of the history, it also returns the position after
// the last text on the page; otherwise the position is nil. A descending page reaches the end if the query has no From.
// An ascending page reaches the end if More is false.
func (s *Service) History(ctx context.Context, owner conversation.Owner, sessionID string, query conversation.MessageQuery) (conversation.MessagePage, *stream.Position, error) {
	page, err := s.Store.Messages(ctx, owner, sessionID, query)
	if err != nil {
		return conversation.MessagePage{}, nil, err
	}
	newest := query.From == "" && !query.Ascending || query.Ascending && !page.More
	position := page.Session.End()
	for i := range page.Messages {
		m := &page.Messages[i]
		if m.Status != stream.Streaming {
			continue
		}
		if *m, position, err = s.current(ctx, owner, *m); err != nil {
			return conversation.MessagePage{}, nil, err
		}
	}
	if !newest {
		return page, nil, nil
	}
	return page, &position, nil
}

// Message returns one message, with the current text of a live reply, and the position after that text.
func (s *Service) Message(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (conversation.Message, stream.Position, error) {
	m, err := s.Store.Message(ctx, owner, sessionID, messageID)
	if err != nil {
		return conversation.Message{}, stream.Position{}, err
	}
	return s.current(ctx, owner, m)
}

// IsReply reports whether a message is a reply. Its errors are those of Message. It does not read the text of a reply that is
// in memory, because each viewer calls it.
func (s *Service) IsReply(ctx context.Context, owner conversation.Owner, sessionID, messageID string) (bool, error) {
	if s.hub.Reply(sessionID, messageID) != nil {
		_, err := s.Store.Session(ctx, owner, sessionID) // fails if the session belongs to another owner
		return err == nil, err
	}
	m, err := s.Store.Message(ctx, owner, sessionID, messageID)
	return m.Role == conversation.Assistant, err
}

// current returns a message with its current text, and the position after that text. For a live reply, the store's text
// is up to one journal tick old.
func (s *Service) current(ctx context.Context, owner conversation.Owner, m conversation.Message) (conversation.Message, stream.Position, error) {
	if m.Status != stream.Streaming {
		return m, stream.After(m.ID), nil
	}
	if r := s.hub.Reply(m.SessionID, m.ID); r != nil {
		size, ending := r.Size()
		if ending == nil {
			if size > len(m.Content) { // if another node writes the reply, this node may have less text than the store
				m.Content, _ = r.Snapshot()
			}
			return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
		}
	} else if s.Nodes != nil {
		return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
	}
	// The reply has ended since the store was read, or its turn has only just begun.
	m, err := s.Store.Message(ctx, owner, m.SessionID, m.ID)
	switch {
	case err != nil:
		return conversation.Message{}, stream.Position{}, err
	case m.Status != stream.Streaming:
		return m, stream.After(m.ID), nil
	}
	return m, stream.Position{ID: m.ID, Offset: len(m.Content)}, nil
}

// Preview fits a message into the context window as a turn would, and changes nothing. If a send would return
// *conversation.OverflowError, Preview does too. A live reply counts with its journalled text. Preview calls the
// embedding model, as a send does; Store.Context charges the message's tokens for that. Preview makes no summary. If a
// send would first wait for a summary, Preview shows the plan without that summary.
func (s *Service) Preview(ctx context.Context, owner conversation.Owner, sessionID string, role conversation.Role, content string) (conversation.Preview, error) {
	message := conversation.Message{Role: role, Content: content, Tokens: s.Count(content)}
	c, err := s.Store.Context(ctx, owner, sessionID, message.Tokens)
	if err != nil {
		return conversation.Preview{}, err
	}
	config := c.Session.Context
	current, ok := c.Session.Window().Check(config.CompressionEnabled, c.Session.HistoryTokens, message.TokensInPrompt())
	if !ok {
		return conversation.Preview{}, &conversation.OverflowError{CurrentTokens: current, MaxTokens: config.MaxTokens}
	}
	if n := len(c.History); n > 0 && c.History[n-1].Status == stream.Streaming {
		if reply := &c.History[n-1]; reply.Content != "" {
			reply.Tokens = s.Count(reply.Content)
			c.Session.HistoryTokens += reply.TokensInPrompt()
		}
	}
	f := prompt.New(c, message)
	if model, ok := s.Models.Lookup(c.Session.Model.Model); ok {
		f.LimitTo(prompt.LimitOf(model))
	}
	f.Compare(s.embeddings.OfMessage(ctx, f))
	f.Plan()
	return f.Preview() // may also return an overflow, because Check did not count the tokens of a live reply
}

// Metrics returns an owner's figures for a period. Usage is counted by the hour, so an hour that is partly in the period
// counts in full.
func (s *Service) Metrics(ctx context.Context, owner conversation.Owner, period conversation.Period) (conversation.Metrics, error) {
	from, to := usage.HourOf(int64(period.Start)), usage.HourAfter(int64(period.End))
	used, err := s.Store.Usage(ctx, owner, from, to)
	if err != nil {
		return conversation.Metrics{}, err
	}
	series := usage.Series(used.Hours, from, to, period.Granularity)
	m := conversation.Metrics{Period: period, Metrics: usage.MetricsOf(used.Hours), Series: make([]conversation.MetricsEntry, len(series))}
	for i, entry := range series {
		m.Series[i] = conversation.MetricsEntry{
			Start: conversation.Time(entry.From.Milliseconds()), End: conversation.Time(entry.To.Milliseconds()), Metrics: entry.Metrics,
		}
	}
	return m, nil
}

// UsageReport returns an owner's usage in this calendar month. The month is taken from the store's clock, because the
// store counts usage by its own clock.
func (s *Service) UsageReport(ctx context.Context, owner conversation.Owner, limits usage.Limits) (conversation.UsageReport, error) {
	from, to := usage.Month(usage.HourOf(time.Now().UnixMilli()))
	used, err := s.Store.Usage(ctx, owner, from, to)
	// Around the end of a month, the clocks of this process and of the store may show different months.
	for err == nil && (used.Now < from || used.Now >= to) {
		from, to = usage.Month(used.Now)
		used, err = s.Store.Usage(ctx, owner, from, to)
	}
	if err != nil {
		return conversation.UsageReport{}, err
	}
	owned := usage.Owned{Sessions: int64(used.Active), StoredBytes: used.StoredBytes, Keys: used.Keys, Sockets: used.Sockets}
	report := conversation.UsageReport{Report: usage.ReportOf(used.Hours, owned, limits)}
	report.BillingPeriod.Start, report.BillingPeriod.End = conversation.Time(from.Milliseconds()), conversation.Time(to.Milliseconds())
	return report, nil
}
