package redis

import (
	"context"
	"slices"

	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
)

var getContextScript = newScript("get_context", reserves|idempotent)

// Context implements conversation.Store.
func (s *Store) Context(ctx context.Context, owner conversation.Owner, sessionID string, tokens int) (conversation.Context, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getContextScript, tag, []string{sessionKey(tag, sessionID)}, sessionID, tokens)
	if err != nil {
		return conversation.Context{}, err
	}
	parts := list(reply)
	if text(reply) == "gone" {
		return conversation.Context{}, conversation.ErrSessionNotFound
	} else if outcome(parts) == "tokens" {
		return conversation.Context{}, refusedTurn(ctx, parts)
	} else if len(parts) != 7 {
		return conversation.Context{}, getContextScript.malformed()
	}
	c, err := readContext(sessionID, parts[2:])
	if err != nil {
		return conversation.Context{}, err
	}
	if live := text(parts[1]); live != "" {
		m, err := readMember(sessionID, live)
		if err != nil {
			return conversation.Context{}, err
		}
		c.History = append(c.History, m)
	}
	c.Session, err = readSession(sessionID, parts[0])
	return c, err
}

// readContext reads the results of context_view (lua/lib/prompt.lua): all parts of a context except the session.
func readContext(sessionID string, parts []any) (c conversation.Context, err error) {
	if c.History, err = readMembers(sessionID, parts[0]); err != nil {
		return c, err
	}
	slices.Reverse(c.History)
	for i := range c.History {
		c.History[i].Metadata = nil // a small message still has its metadata
	}
	vectors := list(parts[2]) // one for each indexed message, or an empty list
	for i, member := range slices.Backward(list(parts[1])) {
		x, err := readIndexed(text(member))
		if err != nil {
			return c, err
		}
		if i < len(vectors) && text(vectors[i]) != "" {
			x.Vector = window.Vector(text(vectors[i]))
		}
		c.Index = append(c.Index, x)
	}
	if c.Summary.Last = text(parts[3]); c.Summary.Last != "" {
		err = record.ReadSummary(text(parts[4]), &c.Summary)
	}
	return c, err
}
