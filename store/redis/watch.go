package redis

import (
	"context"
	"sync"
	"time"

	"parley/conversation"
)

var (
	watchScript  = compile("watch", source("watchers")+source("watch"), sessions|admits|idempotent)
	glanceScript = compile("glance", source("watchers")+source("glance"), sessions|idempotent)
)

// watchAgain is how long after a node has said that it watches a session it says so again: it stays watched for
// conversation.FollowLease after each glance, less this.
const watchAgain = 5 * time.Second

// viewers is who watches the sessions that this node writes in, and when this node last said that it watches one.
type viewers struct {
	mu      sync.Mutex
	watched map[string]time.Time            // guarded by mu; by session, when this node said last that it watches it
	of      map[string]map[string]time.Time // guarded by mu; by session, until when which other node watches it
}

// due reports whether this node has to say again that it watches a session.
func (v *viewers) due(sessionID string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	said, ok := v.watched[sessionID]
	return !ok || now.Sub(said) >= watchAgain
}

// said notes that this node has said that it watches a session.
func (v *viewers) said(sessionID string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.watched == nil {
		v.watched = make(map[string]time.Time)
	}
	v.watched[sessionID] = at
}

// add notes that another node watches a session.
func (v *viewers) add(sessionID, node string, until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = make(map[string]map[string]time.Time)
	}
	if v.of[sessionID] == nil {
		v.of[sessionID] = make(map[string]time.Time)
	}
	v.of[sessionID][node] = until
}

// poke adds a session to what the nodes that watch it, other than self, are to be poked with.
func (v *viewers) poke(pokes map[string][]byte, sessionID, self string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for node, until := range v.of[sessionID] {
		if node == self || now.After(until) {
			continue
		}
		if len(pokes[node]) > 0 {
			pokes[node] = append(pokes[node], ' ')
		}
		pokes[node] = append(pokes[node], sessionID...)
	}
}

// sweep forgets what is over.
func (v *viewers) sweep(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for sessionID, said := range v.watched {
		if now.Sub(said) > conversation.FollowLease {
			delete(v.watched, sessionID)
		}
	}
	for sessionID, nodes := range v.of {
		for node, until := range nodes {
			if now.After(until) {
				delete(nodes, node)
			}
		}
		if len(nodes) == 0 {
			delete(v.of, sessionID)
		}
	}
}

// Watch implements conversation.Nodes. The node that writes in the session is told at once (schema.go, inbox).
func (s *Store) Follow(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	now, tag := time.Now(), tagOfOwner(owner)
	reply, err := s.run(ctx, watchScript, tag, []string{sessionKey(tag, sessionID)},
		sessionID, s.node, conversation.FollowLease.Milliseconds())
	if err != nil {
		return conversation.Session{}, err
	}
	if reply == nil {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	s.viewers.said(sessionID, now)
	return readSession(sessionID, reply)
}

// Poll implements conversation.Nodes, in one trip. That the sessions are watched is said again every five seconds only.
func (s *Store) Poll(ctx context.Context, watched []conversation.Followed) ([]conversation.Update, error) {
	now := time.Now()
	calls, due := make([]call, len(watched)), make([]bool, len(watched))
	for i, w := range watched {
		tag, watchFor := tagOfOwner(w.Owner), any("")
		if due[i] = s.viewers.due(w.SessionID, now); due[i] {
			watchFor = conversation.FollowLease.Milliseconds()
		}
		calls[i] = call{
			glanceScript, []string{sessionKey(tag, w.SessionID)},
			[]any{w.SessionID, s.node, watchFor, w.Reply, max(0, w.Offset)},
		}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	replies, errs := s.runAll(ctx, calls)
	glances := make([]conversation.Update, len(watched))
	for i, reply := range replies {
		if errs[i] != nil {
			return nil, errs[i]
		}
		var err error
		if glances[i], err = s.glanced(&watched[i], reply, now); err != nil {
			return nil, err
		}
		if due[i] && !glances[i].Gone {
			s.viewers.said(watched[i].SessionID, now)
		}
	}
	return glances, nil
}

// glanced reads what a glance at a session returned, and notes who watches it.
func (s *Store) glanced(w *conversation.Followed, reply any, now time.Time) (conversation.Update, error) {
	if at, gone := reply.(int64); gone {
		return conversation.Update{Gone: true, At: conversation.Time(at)}, nil
	}
	parts, _ := reply.([]any)
	if len(parts) != 7 {
		return conversation.Update{}, glanceScript.malformed()
	}
	session, err := readSession(w.SessionID, parts[0])
	if err != nil {
		return conversation.Update{}, err
	}
	writer, ok1 := parts[1].(string)
	stop, ok2 := parts[2].(string)
	text, ok3 := parts[3].(string)
	watching, ok4 := parts[4].([]any)
	if !ok1 || !ok2 || !ok3 || !ok4 || len(watching)%2 != 0 {
		return conversation.Update{}, glanceScript.malformed()
	}
	for i := 0; i < len(watching); i += 2 {
		node, _ := watching[i].(string)
		left, _ := watching[i+1].(int64)
		if node != s.node {
			s.viewers.add(w.SessionID, node, now.Add(time.Duration(left)*time.Millisecond))
		}
	}
	s.suspect(w.Owner, w.SessionID, writer)
	g := conversation.Update{Session: session, Stop: conversation.Stop(stop)}
	if text != "" {
		g.Text = []byte(text)
	}
	if last, figures := word(parts[5:]), word(parts[6:]); last != "" && figures != "" {
		g.Summary.Last = last
		err = (&reader{rest: figures}).figures(&g.Summary)
	}
	return g, err
}
