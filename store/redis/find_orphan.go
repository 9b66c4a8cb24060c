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
	parts := list(found)
	if len(parts) != 4 {
		return reply, 0, findOrphanScript.malformed()
	}
	prompt := int(integer(parts[2]))
	reply = conversation.Message{
		ID: text(parts[0]), SessionID: o.session, Role: conversation.Assistant, Status: stream.Interrupted,
		Content: validPrefix(text(parts[3])),
	}
	reply.Tokens, reply.Terms = count(reply.Content), window.TermsOf(reply.Content)
	reply.Usage = &conversation.Usage{
		Prompt: prompt, Completion: reply.Tokens, Total: prompt + reply.Tokens, Estimated: true,
	}
	return reply, integer(parts[1]), nil
}
