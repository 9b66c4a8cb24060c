package redis

import (
	"context"
	"encoding/json"
	"strconv"

	"parley/conversation"
)

var (
	createSessionScript = newScript("create_session", admits|sessions|durable)
	getSessionScript    = newScript("get_session", reads|admits|sessions)
	listSessionsScript  = newScript("list_sessions", admits|sessions|idempotent)
	deleteSessionScript = newScript("delete_session", admits|sessions|wakes|durable)
)

// randomLength is how many characters of an id are random (conversation/id.go).
const randomLength = 9

func tagOfOwner(o conversation.Owner) string { return tagOf(o.Account, string(o.Mode)) }

// CreateSession implements conversation.Store. The id sorts after those of all the sessions that the owner has.
func (s *Store) CreateSession(ctx context.Context, owner conversation.Owner, session conversation.NewSession) (conversation.SessionCreated, error) {
	tag, config := tagOfOwner(owner), session.Context
	key, digest := requestOf(session.Idempotency)
	args := []any{
		conversation.RandomText(randomLength), session.UserID, []byte(session.Metadata), config.MaxTokens, flag(config.CompressionEnabled),
		string(config.RetentionPolicy), conversation.Lifetime.Milliseconds(), key, digest,
	}
	counted := conversation.UsageOfSession()
	reply, err := s.run(ctx, createSessionScript, tag, []string{sessionsKey(tag)}, appendCounts(args, &counted)...)
	if err != nil {
		return conversation.SessionCreated{}, err
	}
	parts := list(reply)
	if what := word(parts); what == "conflict" {
		return conversation.SessionCreated{}, conversation.ErrIdempotencyConflict
	} else if len(parts) != 3 {
		return conversation.SessionCreated{}, createSessionScript.malformed()
	}
	made, err := readSession(text(parts[1]), parts[2])
	return conversation.SessionCreated{Session: made, Replayed: word(parts) == "replayed"}, err
}

// requestOf returns how scripts take an idempotency key and its digest; "" for none.
func requestOf(i *conversation.Idempotency) (key string, digest []byte) {
	if i == nil {
		return "", nil
	}
	return i.Key, i.Digest[:]
}

// Session implements conversation.Store.
func (s *Store) Session(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getSessionScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, err
	}
	return sessionOrGone(sessionID, reply)
}

// Sessions implements conversation.Store.
func (s *Store) Sessions(ctx context.Context, owner conversation.Owner, query conversation.SessionQuery) (conversation.SessionPage, error) {
	tag := tagOfOwner(owner)
	index := sessionsKey(tag)
	if query.UserID != "" {
		index = userSessionsKey(tag, query.UserID)
	}
	reply, err := s.run(ctx, listSessionsScript, tag, []string{index}, query.Before, query.Limit)
	if err != nil {
		return conversation.SessionPage{}, err
	}
	parts := list(reply)
	if len(parts)%2 != 1 {
		return conversation.SessionPage{}, listSessionsScript.malformed()
	}
	page := conversation.SessionPage{More: integer(parts[0]) == 1}
	for i := 1; i < len(parts); i += 2 {
		session, err := readSession(text(parts[i]), parts[i+1])
		if err != nil {
			return conversation.SessionPage{}, err
		}
		page.Sessions = append(page.Sessions, session)
	}
	return page, nil
}

// DeleteSession implements conversation.Store. Where its answer is lost, another call finds the session gone.
func (s *Store) DeleteSession(ctx context.Context, owner conversation.Owner, sessionID string) (conversation.Session, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, deleteSessionScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, err
	}
	return sessionOrGone(sessionID, reply)
}

// sessionOrGone reads the view of a session, or that there is none.
func sessionOrGone(id string, reply any) (conversation.Session, error) {
	if text(reply) == "gone" {
		return conversation.Session{}, conversation.ErrSessionNotFound
	}
	return readSession(id, reply)
}

// readSession reads the view of a session (lua/session.lua).
func readSession(id string, view any) (conversation.Session, error) {
	v := fields{list(view), 0, nil}
	s := conversation.Session{ID: id}
	s.UserID = v.text()
	s.CreatedAt, s.ExpiresAt, s.LastActivity = v.time(), v.time(), v.time()
	s.MessageCount = v.int()
	s.TokenUsage = conversation.TokenUsage{Prompt: v.int(), Completion: v.int(), Total: v.int()}
	if metadata := v.text(); metadata != "" {
		s.Metadata = json.RawMessage(metadata)
	}
	s.Context = conversation.ContextConfig{
		MaxTokens: v.int(), CompressionEnabled: v.text() != "", RetentionPolicy: conversation.RetentionPolicy(v.text()),
	}
	s.HistoryTokens = v.int()
	s.Head, s.Cleared, s.LiveReply, s.LiveMessage = v.text(), v.text(), v.text(), v.text()
	s.Fence = v.number()
	return s, v.err
}

// fields are read one after the other. err says that one was not there, or no number.
type fields struct {
	all []any
	at  int
	err error
}

func (f *fields) text() string {
	if f.at >= len(f.all) {
		f.err = errRecord
		return ""
	}
	f.at++
	return text(f.all[f.at-1])
}

func (f *fields) number() int64 {
	n, err := strconv.ParseInt(f.text(), 10, 64)
	if err != nil {
		f.err = errRecord
	}
	return n
}

func (f *fields) int() int { return int(f.number()) }

func (f *fields) time() conversation.Time { return conversation.Time(f.number()) }

// list returns a reply that is a list; nil if it is none.
func list(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// word returns the text that a list begins with: what a script did.
func word(list []any) string {
	if len(list) == 0 {
		return ""
	}
	return text(list[0])
}

// flag returns how scripts take a bool.
func flag(b bool) string {
	if b {
		return "1"
	}
	return ""
}
