package redis

import (
	"context"

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

// readContext reads the results of context_view (lua/lib/prompt.lua): all parts of a context except the session. The ids and texts
// of the context share the memory of the results.
func readContext(sessionID string, parts []any) (c conversation.Context, err error) {
	newest, length := packedList(text(parts[0]))
	if length > 0 {
		c.History = make([]conversation.Message, length, length+1) // the live reply may follow
	}
	for i := length - 1; i >= 0 && err == nil; i-- {
		c.History[i], err = readMemberBy(record.ReadForPrompt[string], sessionID, newest.text())
	}
	indexed, length := packedList(text(parts[1]))
	vectors, vectorCount := packedList(text(parts[2])) // one for each indexed message, or none
	if length > 0 {
		c.Index = make([]conversation.Indexed, length)
	}
	var reader record.IndexedReader[string]
	for i := length - 1; i >= 0 && err == nil; i-- {
		c.Index[i], err = readIndexed(indexed.text(), &reader)
		if vectorCount == length {
			if vector := vectors.text(); vector != "" {
				c.Index[i].Vector = window.Vector(vector)
			}
		}
	}
	if err == nil && (newest.bad || indexed.bad || vectors.bad) {
		err = errRecord
	}
	if err == nil {
		c.Summary, err = readSummary(parts[3], parts[4])
	}
	return c, err
}
