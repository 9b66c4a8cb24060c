package redis

import (
	"context"

	"parley/conversation"
)

var saveSummaryScript = newScript("save_summary", 0)

// SaveSummary implements conversation.Store. If its reply is lost, a repeat returns ErrStale, even if the summary stored is its own.
func (s *Store) SaveSummary(ctx context.Context, owner conversation.Owner, sessionID, after string, summary conversation.Summary, usage conversation.Usage) error {
	tag := tagOfOwner(owner)
	counted := conversation.UsageOfSummary(usage)
	figures := appendInts(nil, summary.Tokens, summary.Count, summary.Replaced)
	reply, err := s.run(ctx, saveSummaryScript, tag, []string{sessionKey(tag, sessionID)}, appendCounts([]any{
		sessionID, after, summary.Last, appendText(nil, summary.Text), figures, usage.Prompt, usage.Completion, usage.Total,
	}, &counted)...)
	if err != nil {
		return err
	}
	switch text(reply) {
	case "saved":
		return nil
	case "stale":
		return conversation.ErrStale
	case "gone":
		return conversation.ErrSessionNotFound
	}
	return saveSummaryScript.malformed()
}

// figures reads the figures of a summary. One stored by a version without Replaced lacks that.
func (r *reader) figures(s *conversation.Summary) error {
	s.Tokens, s.Count = r.int(), r.int()
	if r.rest != "" {
		s.Replaced = r.int()
	}
	if r.bad {
		return errRecord
	}
	return nil
}
