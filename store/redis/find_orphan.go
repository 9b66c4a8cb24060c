package redis

import (
	"context"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

var findOrphanScript = newScript("find_orphan", idempotent)

// findOrphans runs the script for each orphan, in one round trip to each server. It returns a result or an error for each orphan.
// The result is nil if the turn has ended.
func (s *Store) findOrphans(ctx context.Context, orphans []orphan) ([]any, []error) {
	finds := make([]call, len(orphans))
	for i, o := range orphans {
		finds[i] = call{findOrphanScript, []string{o.key()}, []any{o.session, o.node, o.waiter}}
	}
	return s.runAll(ctx, finds)
}

// interrupted returns the final reply of an orphan, with the status interrupted, and the turn's fencing token. found is the
// result of the script.
func (o *orphan) interrupted(found any, count func(text string) int) (reply conversation.Message, fence int64, err error) {
	f := fields{list(found), 0, nil}
	reply = conversation.Message{
		ID: f.text(), SessionID: o.session, Role: conversation.Assistant, Status: stream.Interrupted,
	}
	fence = f.number()
	prompt := f.int()
	reply.Content = validPrefix(f.text())
	if f.err != nil {
		return reply, 0, findOrphanScript.malformed()
	}
	reply.Tokens, reply.Terms = count(reply.Content), window.TermsOf(reply.Content)
	reply.Usage = &conversation.Usage{
		Prompt: prompt, Completion: reply.Tokens, Total: prompt + reply.Tokens, Estimated: true,
	}
	return reply, fence, nil
}
