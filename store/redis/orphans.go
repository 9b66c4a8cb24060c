package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

var (
	findOrphanScript = newScript("find_orphan", sessions|idempotent)
	endOrphanScript  = newScript("end_orphan", sessions|durable)
)

// orphansAtOnce is how many turns of dead nodes are ended in one trip.
const orphansAtOnce = 64

// orphan is a turn whose node is gone.
type orphan struct {
	node    string
	owner   conversation.Owner
	session string
	waiter  string // of the BeginTurn; "" if it is not known
	member  string // of the node's live set; "" if it is in none
}

// EndOrphans implements conversation.Store: it ends the turns of nodes that have not been heard for three seconds, and of
// those that are none, in sessions that were glanced at; and those that are this node's only as the store has it (reclaim). However many nodes do so at once, each turn is ended, and
// counted, once. For three seconds after this node was itself out of touch, and before it has joined, it ends none.
func (s *Store) EndOrphans(ctx context.Context, count func(text string) int) (int, error) {
	if !s.membership.joined() {
		return 0, nil
	}
	if err := s.beat(ctx); err != nil { // it says who is dead now, and not a second ago
		return 0, err
	}
	now := time.Now()
	dead, unknown := s.membership.toReap(now)
	ended, err := s.endOrphans(ctx, unknown, count)
	if err == nil {
		s.membership.clear(unknown)
	}
	if s.membership.toReclaim(now) {
		n, errOwn := s.reclaim(ctx, count)
		if ended, err = ended+n, errors.Join(err, errOwn); errOwn == nil {
			s.membership.reclaimed(now)
		}
	}
	for _, id := range dead {
		n, errDead := s.endOrphansOf(ctx, id, count)
		ended, err = ended+n, errors.Join(err, errDead)
	}
	return ended, err
}

// endOrphansOf ends the turns of a node that is dead, and forgets it.
func (s *Store) endOrphansOf(ctx context.Context, id string, count func(text string) int) (int, error) {
	ctxCall, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	members, err := s.db.SMembers(ctxCall, liveKey(id)).Result()
	if err != nil {
		return 0, fault(err)
	}
	ended := 0
	for chunk := range slices.Chunk(members, orphansAtOnce) {
		n, err := s.endOrphans(ctx, orphansOf(id, chunk), count)
		if ended += n; err != nil {
			return ended, err
		}
		if err := s.removeLive(ctx, id, chunk); err != nil {
			return ended, err
		}
	}
	_, err = s.run(ctx, buryScript, "", []string{nodesKey}, id, s.membership.deadAfter.Milliseconds())
	return ended, err
}

// orphansOf reads members of a node's live set.
func orphansOf(node string, members []string) []orphan {
	orphans := make([]orphan, 0, len(members))
	for _, member := range members {
		if o, ok := orphanOf(node, member); ok {
			orphans = append(orphans, o)
		}
	}
	return orphans
}

// orphanOf reads a member of a node's live set (schema.go).
func orphanOf(node, member string) (orphan, bool) {
	tag, rest, _ := strings.Cut(member, " ")
	sessionID, waiter, _ := strings.Cut(rest, " ")
	owner, ok := ownerOfTag(tag)
	return orphan{node: node, owner: owner, session: sessionID, waiter: waiter, member: member}, ok
}

// removeLive removes members from a node's live set.
func (s *Store) removeLive(ctx context.Context, id string, members []string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	gone := make([]any, len(members))
	for i, member := range members {
		gone[i] = member
	}
	return fault(s.db.SRem(ctx, liveKey(id), gone...).Err())
}

// endOrphans ends turns in two trips: one for their texts, whose tokens are counted here, one to end them. It returns how many there
// were still to end.
func (s *Store) endOrphans(ctx context.Context, orphans []orphan, count func(text string) int) (int, error) {
	if len(orphans) == 0 {
		return 0, nil
	}
	finds := make([]call, len(orphans))
	for i, o := range orphans {
		keys := []string{sessionKey(tagOfOwner(o.owner), o.session)}
		finds[i] = call{findOrphanScript, keys, []any{o.session, o.node, o.waiter}}
	}
	found, errs := s.runAll(ctx, finds)
	var ends []call
	for i, reply := range found {
		if errs[i] != nil || reply == nil {
			continue
		}
		ending, fence, err := orphans[i].interrupted(reply, count)
		if err != nil {
			errs[i] = err
			continue
		}
		ends = append(ends, call{endOrphanScript, finds[i].keys, endingOf(fence, &ending, conversation.Timing{})})
	}
	if len(ends) == 0 {
		return 0, errors.Join(errs...)
	}
	replies, endErrs := s.runAll(ctx, ends)
	ended := 0
	for _, reply := range replies {
		if reply == int64(1) {
			ended++
		}
	}
	return ended, errors.Join(append(errs, endErrs...)...)
}

// interrupted returns the reply of a turn as findOrphanScript found it, ended, and the turn's fence.
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

// RemoveExpired implements conversation.Store. In Redis sessions expire by themselves, with all that is theirs, so it removes
// none, and what it says of the next one is when to ask again: in an hour, which is to no more use. That a session is gone, a
// node that watches it learns by Poll. Of the indices, and of counts of usage that are too old, see schema.go.
func (s *Store) RemoveExpired(context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	return nil, conversation.TimeOf(time.Now().Add(time.Hour)), nil
}
