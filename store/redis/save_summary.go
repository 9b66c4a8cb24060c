package redis

import (
	"context"

	"parley/conversation"
	"parley/store/record"
)

var saveSummaryScript = newScript("save_summary", 0)

// SaveSummary implements conversation.Store. After a lost response, a repeat returns ErrStale if the first call stored the
// summary.
func (s *Store) SaveSummary(ctx context.Context, owner conversation.Owner, sessionID, after string, summary conversation.Summary, usage conversation.Usage) error {
	tag := tagOfOwner(owner)
	counted := conversation.UsageOfSummary(usage)
	reply, err := s.run(ctx, saveSummaryScript, tag, []string{sessionKey(tag, sessionID)}, appendCounts([]any{
		sessionID, after, summary.Last, record.AppendSummaryText(nil, &summary), record.AppendSummaryFigures(nil, &summary),
		usage.Prompt, usage.Completion, usage.Total,
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
