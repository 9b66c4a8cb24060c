package server_test

import (
	"context"
	"strings"
	"testing"

	"parley/stream/wire"
)

// The server refuses a cursor that lies beyond the newest message or beyond the text of a completed message. A viewer that
// subscribed with such a cursor would wait for ever.
func TestCursor_BeyondEnd_Refused(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session, empty := p.session(), p.session()
	reply := p.begin(session, "hello")["messageId"].(string)
	c := model.next(t)
	c.say("eight by")
	c.end()
	s := p.dial()
	s.mustSubscribe(session, p.cursorOf(session, reply, "0"))
	for f := s.any(); f.Type != "message.completed"; f = s.any() {
	}
	question := p.history(session)[0].MessageID
	live := p.begin(session, "again")["messageId"].(string)
	c = model.next(t)
	c.say("so far")
	for name, test := range map[string]struct {
		session, id, offset string
		accepted            bool
	}{
		"refused_id_after_newest_message":          {session, "msg_zzzzzzzzzzzzzzzz", "e", false},
		"refused_id_after_newest_with_offset":      {session, "msg_zzzzzzzzzzzzzzzz", "7", false},
		"refused_any_message_in_empty_session":     {empty, reply, "e", false},
		"refused_offset_over_completed_reply":      {session, reply, "9", false},
		"refused_offset_over_users_message":        {session, question, "9", false},
		"accepted_beginning":                       {session, "", "e", true},
		"accepted_beginning_of_empty_session":      {empty, "", "e", true},
		"accepted_unknown_id_before_first_message": {session, "msg_0000000000000000", "5", true},
		"accepted_offset_at_end_of_reply":          {session, reply, "8", true},
		"accepted_after_reply":                     {session, reply, "e", true},
		"accepted_offset_over_live_reply":          {session, live, "1000", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := p.dial()
			f, err := s.subscribe(test.session, p.cursorOf(test.session, test.id, test.offset))
			if err != nil {
				t.Fatal(err)
			}
			if accepted := f.Type == "subscribed"; accepted != test.accepted || !accepted && (f.code != "validation_error" || f.field != "after") {
				t.Errorf("got %s", f.raw)
			}
		})
	}
	// After a restored backup, a page has such a cursor for each session.
	t.Run("refusals_do_not_close_socket", func(t *testing.T) {
		s := p.dial()
		for range 2 * wire.MaxInvalidFrames {
			if f, err := s.subscribe(session, p.cursorOf(session, "msg_zzzzzzzzzzzzzzzz", "e")); err != nil || f.code != "validation_error" {
				t.Fatalf("%+v, %v", f, err)
			}
		}
		s.mustSubscribe(session, "")
	})
	for name, id := range map[string]string{"400_id_after_newest_message": "msg_zzzzzzzzzzzzzzzz", "400_offset_over_completed_reply": reply} {
		r := refused{"GET", messages("{id}") + "/" + reply + "/stream", nil, []string{"Last-Event-ID", p.cursorOf(session, id, "9")}, 400, "validation_error", "Last-Event-ID"}
		refusals{name: r}.run(t, p, session)
	}
	c.end()
}

// cursorOf returns a well-formed cursor of a session. offset is a number of bytes, or "e" for the end of the message. The message
// and the offset need not exist.
func (p *parley) cursorOf(session, id, offset string) string {
	p.t.Helper()
	cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	tag, _, _ := strings.Cut(cursor, ".")
	return tag + "." + id + "." + offset
}

// If a node dies, the text of the last journal tick may be lost, although viewers on that node have received it. The server must
// still accept the cursors of these viewers.
func TestCursor_BeyondTextOfInterruptedReply_Accepted(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	reply := p.begin(session, "hello")["messageId"].(string)
	model.next(t).say("so far")
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.drain(now)
	if h := p.history(session); h[1].Status != "interrupted" {
		t.Fatalf("the reply ended as %+v", h[1])
	}
	s := p.dial()
	s.mustSubscribe(session, p.cursorOf(session, reply, "1000"))
	s.next("message.interrupted")
}
