package storetest

import (
	"encoding/json"
	"slices"
	"testing"

	"parley/conversation"
	"parley/stream"
)

func sessionTests() []test {
	return []test{
		{"new session has defaults and an id", newSession},
		{"session is read back as it was created", readBack},
		{"another owner's session is not found", foreignSession},
		{"list omits owners with similar names", similarOwners},
		{"unknown or malformed id is not found", unknownSession},
		{"list is newest first", listSessions},
		{"list of one user omits others", listUser},
		{"list continues after a deleted session", listAfterGone},
		{"owner without sessions has an empty list", listNothing},
		{"delete removes session and messages", deleteSession},
		{"live turn of a deleted session cannot end", deleteLive},
		{"delete wakes waiters", deleteQueued},
		{"RemoveExpired keeps unexpired sessions", removeNothing},
	}
}

func newSession(t *testing.T, s *subject) {
	user := newUser()
	config := conversation.ContextConfig{MaxTokens: 777, RetentionPolicy: conversation.Semantic}
	got := s.create(t, conversation.NewSession{UserID: user, Metadata: json.RawMessage(`{"a":"<b>&"}`), Context: config})
	if !conversation.ValidID(conversation.SessionPrefix, got.ID) {
		t.Errorf("session id %q is not valid", got.ID)
	}
	if got.CreatedAt == 0 {
		t.Error("createdAt is not set")
	}
	same(t, "the session", got, conversation.Session{
		ID: got.ID, UserID: user, Metadata: json.RawMessage(`{"a":"<b>&"}`), Context: config, CreatedAt: got.CreatedAt,
		LastActivity: got.CreatedAt, ExpiresAt: got.CreatedAt.Add(conversation.Lifetime),
	})
}

func readBack(t *testing.T, s *subject) {
	for _, session := range []conversation.NewSession{
		plain(),
		{UserID: newUser(), Metadata: json.RawMessage(`{"nested":{"list":[1,2.50,null,"é\u0001"]}}`), Context: conversation.DefaultContextConfig},
		{UserID: newUser(), Context: conversation.ContextConfig{MaxTokens: 1_000_000, RetentionPolicy: conversation.Priority}},
	} {
		created := s.create(t, session)
		same(t, "Session", s.session(t, created.ID), created)
	}
}

// everyCall calls most of the methods that fail if the session does not exist. It returns the errors by method.
func everyCall(s *subject, sessionID string) map[string]error {
	_, session := s.store.Session(s.ctx, s.owner, sessionID)
	_, messages := s.store.Messages(s.ctx, s.owner, sessionID, conversation.MessageQuery{Limit: 10})
	_, message := s.store.Message(s.ctx, s.owner, sessionID, "msg_0000000000000000")
	_, begun := s.store.BeginTurn(s.ctx, s.owner, question(sessionID, "whose?"))
	_, cleared := s.store.ClearMessages(s.ctx, s.owner, sessionID, conversation.RandomText(16))
	_, ended := s.store.EndTurn(s.ctx, conversation.TurnKey{
		Owner: s.owner, SessionID: sessionID, ReplyID: "msg_0000000000000000", Fence: 1,
	}, answer("mine"), timing)
	_, updated := s.store.UpdateSession(s.ctx, s.owner, sessionID, func(*conversation.Session) error { return nil })
	_, deleted := s.store.DeleteSession(s.ctx, s.owner, sessionID)
	return map[string]error{
		"Session": session, "Messages": messages, "Message": message, "BeginTurn": begun,
		"ClearMessages": cleared, "UpdateSession": updated, "EndTurn": ended, "DeleteSession": deleted,
	}
}

func (s *subject) wantGone(t *testing.T, sessionID string) {
	t.Helper()
	for call, err := range everyCall(s, sessionID) {
		wantError(t, call, err, conversation.ErrSessionNotFound)
	}
	must(t, s.store.LeaveQueue(s.ctx, s.owner, sessionID, "nobody"), "LeaveQueue")
}

func foreignSession(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	before := s.session(t, session.ID)
	for name, owner := range map[string]conversation.Owner{
		"another account": {Account: s.owner.Account + "x", Mode: s.owner.Mode},
		"the other mode":  {Account: s.owner.Account, Mode: conversation.Test},
	} {
		other := s.as(owner)
		other.wantGone(t, session.ID)
		_, err := s.store.Message(s.ctx, owner, session.ID, begun.Reply.ID)
		wantError(t, "Message of "+name, err, conversation.ErrSessionNotFound)
		key := begun.Key
		key.Owner = owner
		_, err = s.store.EndTurn(s.ctx, key, answer("not yours"), timing)
		wantError(t, "EndTurn of "+name, err, conversation.ErrSessionNotFound)
		must(t, s.store.Journal(s.ctx, segments(key, 0, "not yours")), "Journal")
		page, err := s.store.Sessions(s.ctx, owner, conversation.SessionQuery{Limit: 10})
		must(t, err, "Sessions")
		same(t, "Sessions of "+name, page, conversation.SessionPage{})
	}
	same(t, "the session afterwards", s.session(t, session.ID), before)
	same(t, "the live text afterwards", s.message(t, session.ID, begun.Reply.ID).Content, "")
}

func similarOwners(t *testing.T, s *subject) {
	shorter := s.create(t, plain())
	longer := s.as(conversation.Owner{Account: s.owner.Account + "live", Mode: s.owner.Mode})
	other := longer.create(t, plain())
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 10})
	must(t, err, "Sessions")
	same(t, "the sessions of the shorter account name", page.Sessions, []conversation.Session{shorter})
	page, err = s.store.Sessions(s.ctx, longer.owner, conversation.SessionQuery{Limit: 10})
	must(t, err, "Sessions")
	same(t, "the sessions of the longer account name", page.Sessions, []conversation.Session{other})
}

func unknownSession(t *testing.T, s *subject) {
	created := s.create(t, plain())
	for _, id := range []string{
		"session_0000000000000000", "", "session_", created.ID[:len(created.ID)-1], created.ID + "0", "séssion\x00", created.UserID,
	} {
		s.wantGone(t, id)
	}
	same(t, "the session that exists", s.session(t, created.ID), created)
}

// pages reads the whole list of sessions page by page.
func (s *subject) pages(t *testing.T, query conversation.SessionQuery) []conversation.Session {
	t.Helper()
	var all []conversation.Session
	for range 100 {
		page, err := s.store.Sessions(s.ctx, s.owner, query)
		must(t, err, "Sessions")
		all = append(all, page.Sessions...)
		if !page.More {
			return all
		}
		if len(page.Sessions) != query.Limit {
			t.Fatalf("More is true, but the page has only %d of %d sessions", len(page.Sessions), query.Limit)
		}
		query.Before = page.Sessions[len(page.Sessions)-1].ID
	}
	t.Fatal("the list of sessions does not end")
	return nil
}

func listSessions(t *testing.T, s *subject) {
	var created []conversation.Session
	for range 7 {
		created = append(created, s.create(t, plain()))
	}
	slices.Reverse(created)
	if !slices.IsSortedFunc(created, func(a, b conversation.Session) int { return -compare(a.ID, b.ID) }) {
		t.Error("the ids of the sessions do not increase")
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 8, 100} {
		same(t, "all pages", s.pages(t, conversation.SessionQuery{Limit: limit}), created)
	}
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 7})
	must(t, err, "Sessions")
	if page.More {
		t.Error("the page has all sessions, but More is true")
	}
	page, err = s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 7, Before: created[6].ID})
	must(t, err, "Sessions")
	same(t, "the page before the oldest session", page, conversation.SessionPage{})
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func listUser(t *testing.T, s *subject) {
	of := make(map[string][]conversation.Session)
	one, other := newUser(), newUser()
	for i := range 9 {
		session := plain()
		session.UserID = []string{one, other, newUser()}[i%3]
		of[session.UserID] = append([]conversation.Session{s.create(t, session)}, of[session.UserID]...)
	}
	for _, user := range []string{one, other} {
		for _, limit := range []int{1, 2, 3, 10} {
			same(t, "the user's sessions", s.pages(t, conversation.SessionQuery{UserID: user, Limit: limit}), of[user])
		}
	}
	same(t, "the sessions of an unknown user", s.pages(t, conversation.SessionQuery{UserID: newUser(), Limit: 5}), nil)
	_, err := s.store.DeleteSession(s.ctx, s.owner, of[one][1].ID)
	must(t, err, "DeleteSession")
	same(t, "the sessions after one was deleted", s.pages(t, conversation.SessionQuery{UserID: one, Limit: 1}),
		[]conversation.Session{of[one][0], of[one][2]})
}

func listAfterGone(t *testing.T, s *subject) {
	var created []conversation.Session
	for range 5 {
		created = append(created, s.create(t, plain()))
	}
	_, err := s.store.DeleteSession(s.ctx, s.owner, created[2].ID)
	must(t, err, "DeleteSession")
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Before: created[2].ID, Limit: 5})
	must(t, err, "Sessions")
	same(t, "the page", page, conversation.SessionPage{Sessions: []conversation.Session{created[1], created[0]}})
	page, err = s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Before: created[4].ID, Limit: 1})
	must(t, err, "Sessions")
	same(t, "a page before the gap", page, conversation.SessionPage{Sessions: created[3:4], More: true})
}

func listNothing(t *testing.T, s *subject) {
	page, err := s.store.Sessions(s.ctx, s.owner, conversation.SessionQuery{Limit: 20})
	must(t, err, "Sessions")
	same(t, "the page", page, conversation.SessionPage{})
}

func deleteSession(t *testing.T, s *subject) {
	session, kept := s.create(t, plain()), s.create(t, plain())
	asked, _ := s.exchange(t, session.ID, "gone")
	s.exchange(t, kept.ID, "kept")
	before := s.session(t, session.ID)
	deleted, err := s.store.DeleteSession(s.ctx, s.owner, session.ID)
	must(t, err, "DeleteSession")
	same(t, "the result of DeleteSession", deleted, before)
	s.wantGone(t, session.ID)
	_, err = s.store.Message(s.ctx, s.owner, session.ID, asked.ID)
	wantError(t, "Message", err, conversation.ErrSessionNotFound)
	same(t, "the sessions left", s.pages(t, conversation.SessionQuery{Limit: 5}), []conversation.Session{s.session(t, kept.ID)})
	same(t, "the number of messages in the kept session", len(s.history(t, kept.ID)), 2)
}

func deleteLive(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "hello"))
	must(t, s.store.Journal(s.ctx, segments(begun.Key, 0, "some text")), "Journal")
	deleted, err := s.store.DeleteSession(s.ctx, s.owner, session.ID)
	must(t, err, "DeleteSession")
	same(t, "the result of DeleteSession", deleted, begun.Session)
	_, err = s.store.EndTurn(s.ctx, begun.Key, answer("too late"), timing)
	wantError(t, "EndTurn", err, conversation.ErrSessionNotFound)
	must(t, s.store.Journal(s.ctx, segments(begun.Key, 9, " and more")), "Journal of a turn that has ended")
	s.wantGone(t, session.ID)
}

func deleteQueued(t *testing.T, s *subject) {
	session := s.create(t, plain())
	begun := s.begin(t, question(session.ID, "running"))
	first, second := question(session.ID, "first"), question(session.ID, "second")
	queued := []*conversation.Queued{s.queue(t, first), s.queue(t, second)}
	cleared, err := s.store.ClearMessages(s.ctx, s.owner, session.ID, "clears")
	must(t, err, "ClearMessages")
	queued = append(queued, cleared.Queued)
	// The session was granted to one of the waiters before the deletion.
	s.end(t, begun.Key, conversation.Message{Status: stream.Cancelled})
	_, err = s.store.DeleteSession(s.ctx, s.owner, session.ID)
	must(t, err, "DeleteSession")
	for _, q := range queued {
		granted(t, q)
	}
	_, err = s.store.BeginTurn(s.ctx, s.owner, first)
	wantError(t, "BeginTurn by a woken waiter", err, conversation.ErrSessionNotFound)
	_, err = s.store.ClearMessages(s.ctx, s.owner, session.ID, "clears")
	wantError(t, "ClearMessages by a woken waiter", err, conversation.ErrSessionNotFound)
}

func removeNothing(t *testing.T, s *subject) {
	session := s.create(t, plain())
	removed, next, err := s.store.RemoveExpired(s.ctx)
	must(t, err, "RemoveExpired")
	for _, r := range removed {
		if r.Owner == s.owner {
			t.Errorf("session %s was removed", r.Session.ID)
		}
	}
	if next == 0 || next > session.ExpiresAt {
		t.Errorf("the next session expires at %v, want at most %v", next, session.ExpiresAt)
	}
	same(t, "the session", s.session(t, session.ID), session)
}
