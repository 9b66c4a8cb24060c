package redis

import (
	"context"
	"time"

	"parley/conversation"
	"parley/store/record"
)

var pollScript = newScript("poll", idempotent)

// Poll implements conversation.Nodes, in one round trip to each server. While one server of a Cluster is down, Poll still returns
// the sessions on the others. It renews this node's lease of a session if the last renewal was at least followAgain ago.
func (s *Store) Poll(ctx context.Context, followed []conversation.Followed) ([]conversation.Update, error) {
	now := time.Now()
	calls, due := make([]call, len(followed)), make([]bool, len(followed))
	for i, f := range followed {
		tag, lease := tagOfOwner(f.Owner), any("")
		if due[i] = s.followers.due(f.SessionID, now); due[i] {
			lease = conversation.FollowLease.Milliseconds()
		}
		calls[i] = call{
			pollScript, []string{sessionKey(tag, f.SessionID)},
			[]any{f.SessionID, s.node, lease, f.Reply, max(0, f.Offset)},
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	replies, errs := s.runAll(ctx, calls)
	updates, failed := make([]conversation.Update, len(followed)), 0
	for i, reply := range replies {
		err := errs[i]
		if err == nil {
			updates[i], err = s.readUpdate(&followed[i], reply, now)
		}
		if err != nil {
			updates[i] = conversation.Update{Err: err}
			failed++
			continue
		}
		if due[i] && !updates[i].Gone {
			s.followers.renew(followed[i].SessionID, now)
		}
	}
	if failed == len(updates) {
		return nil, updates[0].Err
	}
	return updates, nil
}

// readUpdate reads the result of the poll script for a session; now is when the poll was sent. If this node writes in the
// session, readUpdate also records which nodes follow the session.
func (s *Store) readUpdate(f *conversation.Followed, reply any, now time.Time) (conversation.Update, error) {
	if at, gone := reply.(int64); gone {
		return conversation.Update{Gone: true, At: conversation.Time(at)}, nil
	}
	parts := list(reply)
	if len(parts) != 7 {
		return conversation.Update{}, pollScript.malformed()
	}
	session, err := readSession(f.SessionID, parts[0])
	if err != nil {
		return conversation.Update{}, err
	}
	writer, ok1 := parts[1].(string)
	stop, ok2 := parts[2].(string)
	text, ok3 := parts[3].(string)
	leases, ok4 := parts[4].([]any)
	if !ok1 || !ok2 || !ok3 || !ok4 || len(leases)%2 != 0 {
		return conversation.Update{}, pollScript.malformed()
	}
	for i := 0; i < len(leases); i += 2 {
		node, _ := leases[i].(string)
		left, _ := leases[i+1].(int64)
		if node != s.node {
			s.followers.add(f.SessionID, node, now.Add(time.Duration(left)*time.Millisecond))
		}
	}
	s.suspect(f.Owner, f.SessionID, writer)
	u := conversation.Update{Session: session, Stop: conversation.Stop(stop)}
	if text != "" {
		u.Text = []byte(text)
	}
	if last, figures := outcome(parts[5:]), outcome(parts[6:]); last != "" && figures != "" {
		u.Summary.Last = last
		err = record.ReadSummaryFigures(figures, &u.Summary)
	}
	return u, err
}
