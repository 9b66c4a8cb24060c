package server_test

import (
	"context"
	"strings"
	"testing"

	"parley/stream/wire"
)

// A cursor ahead of everything that the session ever had is refused, because its viewer would wait for ever.
func TestCursor_NeverExisted_Refused(t *testing.T) {
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
		taken               bool
	}{
		"in_the_future":                {session, "msg_zzzzzzzzzzzzzzzz", "e", false},
		"in_the_future_with_offset":    {session, "msg_zzzzzzzzzzzzzzzz", "7", false},
		"in_an_empty_session":          {empty, reply, "e", false},
		"over_the_end_of_a_reply":      {session, reply, "9", false},
		"inside_a_question":            {session, question, "9", false},
		"the_beginning":                {session, "", "e", true},
		"of_an_empty_session":          {empty, "", "e", true},
		"long_ago_and_unknown":         {session, "msg_0000000000000000", "5", true},
		"at_the_end_of_a_reply":        {session, reply, "8", true},
		"after_a_reply":                {session, reply, "e", true},
		"ahead_of_what_is_read_so_far": {session, live, "1000", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := p.dial()
			f, err := s.subscribe(test.session, p.cursorOf(test.session, test.id, test.offset))
			if err != nil {
				t.Fatal(err)
			}
			if taken := f.Type == "subscribed"; taken != test.taken || !taken && (f.code != "validation_error" || f.field != "after") {
				t.Errorf("got %s", f.raw)
			}
		})
	}
	t.Run("no_invalid_frame", func(t *testing.T) { // after a restored backup, all sessions of a page have such a cursor
		s := p.dial()
		for range 2 * wire.MaxInvalidFrames {
			if f, err := s.subscribe(session, p.cursorOf(session, "msg_zzzzzzzzzzzzzzzz", "e")); err != nil || f.code != "validation_error" {
				t.Fatalf("%+v, %v", f, err)
			}
		}
		s.mustSubscribe(session, "")
	})
	for name, id := range map[string]string{"400_in_the_future": "msg_zzzzzzzzzzzzzzzz", "400_over_the_end": reply} {
		r := refused{"GET", messages("{id}") + "/" + reply + "/stream", nil, []string{"Last-Event-ID", p.cursorOf(session, id, "9")}, 400, "validation_error", "Last-Event-ID"}
		refusals{name: r}.run(t, p, session)
	}
	c.end()
}

// cursorOf returns a well-formed cursor of a session; the id and the offset need not exist.
func (p *parley) cursorOf(session, id, offset string) string {
	p.t.Helper()
	cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
	tag, _, _ := strings.Cut(cursor, ".")
	return tag + "." + id + "." + offset
}

// When a node dies, the journal may be one tick behind what a viewer saw. The cursor of that viewer must stay valid.
func TestCursor_BeyondInterruptedReply_Accepted(t *testing.T) {
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
