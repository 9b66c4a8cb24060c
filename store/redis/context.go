package redis

import (
	"context"
	"encoding/binary"
	"math"
	"slices"

	"parley/conversation"
	"parley/conversation/window"
)

var (
	getContextScript  = newScript("get_context", reads|admits|turns)
	getMessagesScript = newScript("get_messages", reads|admits|sessions)
	foldScript        = newScript("fold", sessions)
	setVectorsScript  = newScript("set_vectors", sessions|idempotent)
)

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

// readContext reads what context_view returns (lua/turn.lua): all of a context but the session.
func readContext(sessionID string, parts []any) (c conversation.Context, err error) {
	if c.History, err = readMembers(sessionID, parts[0]); err != nil {
		return c, err
	}
	slices.Reverse(c.History)
	vectors := list(parts[2]) // as many as are indexed, or none
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
		r := reader{rest: text(parts[4])}
		c.Summary.Text = r.text()
		if r.bad {
			return c, errRecord
		}
		err = r.figures(&c.Summary)
	}
	return c, err
}

// figures reads those of a summary. One that was stored before there was Replaced has none.
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

// MessagesByID implements conversation.Store.
func (s *Store) MessagesByID(ctx context.Context, owner conversation.Owner, sessionID string, ids []string) ([]conversation.Message, error) {
	tag := tagOfOwner(owner)
	args := make([]any, 0, len(ids)+1)
	args = append(args, sessionID)
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := s.run(ctx, getMessagesScript, tag, []string{sessionKey(tag, sessionID)}, args...)
	if err != nil {
		return nil, err
	}
	if text(reply) == "gone" {
		return nil, conversation.ErrSessionNotFound
	}
	return readMembers(sessionID, reply)
}

// SaveSummary implements conversation.Store. Where its answer is lost, another call finds the summary out of date, though it may be
// its own.
func (s *Store) SaveSummary(ctx context.Context, owner conversation.Owner, sessionID, after string, summary conversation.Summary, usage conversation.Usage) error {
	tag := tagOfOwner(owner)
	counted := conversation.UsageOfSummary(usage)
	figures := appendInts(nil, summary.Tokens, summary.Count, summary.Replaced)
	reply, err := s.run(ctx, foldScript, tag, []string{sessionKey(tag, sessionID)}, appendCounts([]any{
		sessionID, after, summary.Last, appendText(nil, summary.Text), figures, usage.Prompt, usage.Completion, usage.Total,
	}, &counted)...)
	if err != nil {
		return err
	}
	switch text(reply) {
	case "folded":
		return nil
	case "stale":
		return conversation.ErrStale
	case "gone":
		return conversation.ErrSessionNotFound
	}
	return foldScript.malformed()
}

// SetVectors implements conversation.Store.
func (s *Store) SetVectors(ctx context.Context, owner conversation.Owner, sessionID string, vectors []conversation.ExchangeVector) error {
	tag := tagOfOwner(owner)
	args := make([]any, 0, 2*len(vectors)+1)
	args = append(args, sessionID)
	for _, v := range vectors {
		args = append(args, v.Reply, []byte(v.Vector))
	}
	_, err := s.run(ctx, setVectorsScript, tag, []string{sessionKey(tag, sessionID)}, args...)
	return err
}

// A message is indexed as lua/session.lua says: id, NUL, and this record: its version (1), role, tokens, whether it is never
// sent, the bits of its priority; then its terms, to the end.
const indexedVersion = 1

// appendIndexed writes the record of a message as it is indexed, without its terms.
func appendIndexed(b []byte, m *conversation.Message) []byte {
	x := conversation.Index(m, "")
	b = appendText(append(b, indexedVersion), string(x.Role))
	b = appendText(appendInts(b, x.Tokens), flag(x.Skip))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x.Priority))
}

func appendTerms(b []byte, terms window.Terms) []byte {
	b, _ = terms.AppendBinary(b) // it never fails
	return b
}

// readIndexed reads an indexed message as scripts return it.
func readIndexed(member string) (conversation.Indexed, error) {
	if len(member) < idLength+2 || member[idLength+1] != indexedVersion {
		return conversation.Indexed{}, errRecord
	}
	r := reader{rest: member[idLength+2:]}
	x := conversation.Indexed{ID: member[:idLength], Role: conversation.Role(r.text()), Tokens: r.int(), Skip: r.text() != ""}
	if r.bad || len(r.rest) < 8 {
		return conversation.Indexed{}, errRecord
	}
	x.Priority = math.Float64frombits(binary.LittleEndian.Uint64([]byte(r.rest[:8])))
	if r.rest = r.rest[8:]; r.rest == "" {
		return x, nil
	}
	return x, x.Terms.UnmarshalBinary([]byte(r.rest))
}
