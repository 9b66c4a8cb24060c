package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/stream"
)

func subscribe(id, session string) map[string]any {
	return map[string]any{"type": "subscribe", "id": id, "sessionId": session}
}

func sending(id, session, content string) map[string]any {
	return map[string]any{"type": "send", "id": id, "sessionId": session, "content": content}
}

func TestSocket_Send_FramesInOrderAndResumable(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	s := p.dial()
	subscribed := s.mustSubscribe(session, "")
	if subscribed.Cursor == "" || subscribed.Recovered == nil || !*subscribed.Recovered || subscribed.SessionID != session {
		t.Errorf("subscribed: %+v", subscribed)
	}
	request := sending("my own id", session, "hello")
	request["role"], request["metadata"], request["onBusy"] = "system", map[string]any{"a": 1}, "reject"
	s.must(request)
	sent := s.next("sent")
	asked := s.next("message.created")
	begun := s.next("message.created")
	delta := s.next("message.delta")
	ended := s.next("message.completed")
	if sent.ReplyTo != "my own id" || sent.SessionID != session || sent.MessageID != begun.Message.MessageID {
		t.Errorf("sent: %+v", sent)
	}
	if m := asked.Message; m.Role != "system" || m.Content != "hello" || m.Status != "completed" || m.Metadata["a"] != 1.0 {
		t.Errorf("created: %+v", m)
	}
	if m := begun.Message; m.Role != "assistant" || m.Content != "" || m.Status != "streaming" {
		t.Errorf("created: %+v", m)
	}
	if delta.Offset != 0 || delta.Delta != "You said: hello" || delta.MessageID != sent.MessageID {
		t.Errorf("delta: %+v", delta)
	}
	if m := ended.Message; m.Content != "You said: hello" || m.FinishReason != "stop" || m.Usage["total"] == 0.0 || ended.Error != nil {
		t.Errorf("completed: %+v", ended)
	}
	// A subscription with the cursor of a frame must begin after that frame.
	for i, f := range []frame{subscribed, asked, begun, delta, ended} {
		again := p.dial()
		again.mustSubscribe(session, f.Cursor)
		for _, want := range []frame{asked, begun, delta, ended}[i:] {
			if got := again.next(want.Type); got.Cursor != want.Cursor || got.Delta != want.Delta || fmt.Sprint(got.Message) != fmt.Sprint(want.Message) {
				t.Errorf("with the cursor of frame %d: %+v, want %+v", i, got, want)
			}
		}
		again.must(map[string]any{"type": "ping", "id": "p"})
		again.next("pong")
	}
}

func TestSocket_FailedReply_GetsMessageFailed(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dial()
	s.mustSubscribe(session, "")
	s.must(sending("1", session, "hello"))
	model.next(t).finish(stream.Result{}, &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"})
	for _, kind := range []string{"sent", "message.created", "message.created"} {
		s.next(kind)
	}
	if f := s.next("message.failed"); f.code != "provider_error" || f.Message.Error["code"] != "provider_error" || f.Message.Status != "failed" {
		t.Errorf("failed: %+v", f)
	}
}

func TestSocket_SubscribeInMidReply(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session, other := p.session(), p.session()
	begun := p.begin(session, "hello")
	before := begun["stream"].(map[string]any)["cursor"].(string)
	c := model.next(t)
	c.say("Half of ")
	s := p.dial()
	t.Run("without_cursor_begins_at_current_offset", func(t *testing.T) {
		s.mustSubscribe(session, "")
		c.say("a reply")
		if f := s.next("message.delta"); f.Offset != 8 || f.Delta != "a reply" {
			t.Errorf("delta: %+v", f)
		}
	})
	t.Run("with_cursor_misses_nothing", func(t *testing.T) {
		f := s.mustSubscribe(session, before) // replaces the subscription without a cursor
		if f.Cursor != before || !*f.Recovered {
			t.Errorf("subscribed: %+v", f)
		}
		if f := s.next("message.created"); f.Message.MessageID != begun["messageId"] {
			t.Errorf("created: %+v", f)
		}
		if f := s.next("message.delta"); f.Offset != 0 || f.Delta != "Half of a reply" {
			t.Errorf("delta: %+v", f)
		}
		c.say(".")
		if f := s.next("message.delta"); f.Offset != 15 || f.Delta != "." {
			t.Errorf("delta: %+v", f)
		}
	})
	t.Run("error_bad_cursor", func(t *testing.T) {
		foreign := p.must("GET", messages(other), nil)["stream"].(map[string]any)["cursor"].(string)
		for _, cursor := range []string{"x", ".", foreign, before + "x", before[:len(before)-1], strings.Repeat("x", 100_000)} {
			request := subscribe("1", session)
			request["after"] = cursor
			s.must(request)
			if f := s.next("error"); f.code != "validation_error" || f.field != "after" || f.ReplyTo != "1" {
				t.Errorf("%.50q: %+v", cursor, f)
			}
		}
		request := subscribe("1", session)
		request["after"] = ""
		s.must(request)
		if f := s.next("error"); f.field != "after" {
			t.Errorf("an empty cursor: %+v", f)
		}
	})
	t.Run("unsubscribed_is_the_last_frame", func(t *testing.T) {
		s.must(map[string]any{"type": "unsubscribe", "id": "u", "sessionId": session})
		if f := s.next("unsubscribed"); f.ReplyTo != "u" || f.SessionID != session {
			t.Errorf("unsubscribed: %+v", f)
		}
		c.say(" More.")
		c.end()
		p.dial().mustSubscribe(session, "")
		s.must(map[string]any{"type": "ping", "id": "p"})
		s.next("pong")
	})
	t.Run("unsubscribe_without_subscription_succeeds", func(t *testing.T) {
		s.must(map[string]any{"type": "unsubscribe", "id": "u", "sessionId": other})
		s.next("unsubscribed")
	})
}

func TestSocket_UnsubscribeInMidReply_NoFrameAfter(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	p.begin(session, "hello")
	c := model.next(t)
	s := p.dial()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		// A pause between the words keeps the reply short. Each subscription gets the whole reply, so a long one would take minutes.
		for pause := time.NewTicker(100 * time.Microsecond); ; <-pause.C {
			select {
			case <-stop:
				return
			case c.text <- "word ":
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for i := range 300 {
		s.must(subscribe(fmt.Sprint("s", i), session))
		s.must(map[string]any{"type": "unsubscribe", "id": fmt.Sprint("u", i), "sessionId": session})
		if f := s.next("subscribed"); f.ReplyTo != fmt.Sprint("s", i) {
			t.Fatalf("%d: %+v", i, f)
		}
		for f := s.any(); f.Type != "unsubscribed"; f = s.any() {
			if f.Type != "message.delta" {
				t.Fatalf("%d: %+v", i, f)
			}
		}
	}
}

func TestSocket_SubscribeAndSend_SentPrecedesTurn(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	s := p.dial()
	for i := range 150 {
		session := p.session()
		s.must(subscribe("s", session)) // the subscription begins while the server handles the send
		s.must(sending("m", session, "hello"))
		s.next("subscribed")
		s.next("sent")
		for _, kind := range []string{"message.created", "message.created", "message.delta", "message.completed"} {
			if f := s.next(kind); f.SessionID != session {
				t.Fatalf("%d: %+v", i, f)
			}
		}
		s.must(sending("m", session, "again")) // now the subscription exists before the send
		for _, kind := range []string{"sent", "message.created", "message.created", "message.delta", "message.completed"} {
			s.next(kind)
		}
		s.must(map[string]any{"type": "unsubscribe", "sessionId": session})
		s.next("unsubscribed")
	}
}

// slowBegin is a store. BeginTurn returns a second after the turn has begun. Messages blocks until the turn has begun.
type slowBegin struct {
	conversation.Store
	begun chan struct{}
}

func (s *slowBegin) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	begun, err := s.Store.BeginTurn(ctx, owner, turn)
	close(s.begun)
	time.Sleep(time.Second)
	return begun, err
}

func (s *slowBegin) Messages(ctx context.Context, owner conversation.Owner, session string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	<-s.begun
	return s.Store.Messages(ctx, owner, session, query)
}

func TestSocket_SlowBeginTurn_SentPrecedesTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPiped(t, echo, withStore(func(s conversation.Store) conversation.Store { return &slowBegin{s, make(chan struct{})} }))
		session := p.session()
		s := p.dial()
		s.mustSubscribe(session, "")
		s.must(sending("m", session, "hello"))
		for _, kind := range []string{"sent", "message.created", "message.created", "message.delta", "message.completed"} {
			s.next(kind)
		}
		_ = s.conn.CloseNow()
	})
}

func TestSocket_TwentySessions_TextsNotMixed(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	s := p.dial()
	texts := map[string]string{}
	calls := map[string]*call{}
	for range 20 {
		session := p.session()
		s.mustSubscribe(session, "")
		s.must(sending(session, session, session))
		if f := s.next("sent"); f.ReplyTo != session {
			t.Fatalf("%+v", f)
		}
		s.next("message.created")
		s.next("message.created")
		calls[session] = model.next(t)
	}
	for i := range 5 {
		for session, c := range calls {
			c.say(fmt.Sprint(i, session))
		}
	}
	for _, c := range calls {
		c.end()
	}
	for ended := 0; ended < len(calls); {
		f := s.any()
		switch f.Type {
		case "message.delta":
			if f.Offset != len(texts[f.SessionID]) {
				t.Errorf("%+v", f)
			}
			texts[f.SessionID] += f.Delta
		case "message.completed":
			ended++
			if f.Message.Content != texts[f.SessionID] || strings.Count(f.Message.Content, f.SessionID) != 5 {
				t.Errorf("%+v", f)
			}
		default:
			t.Errorf("%+v", f)
		}
	}
}

func TestSocket_QueuedSends_DoNotBlockOtherFrames(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dial()
	s.must(sending("0", session, "first"))
	sent := s.next("sent")
	c := model.next(t)
	for i := range 32 {
		s.must(sending(fmt.Sprint(i+1), session, "waiting"))
	}
	s.must(map[string]any{"type": "ping", "id": "p"})
	if f := s.next("pong"); f.ReplyTo != "p" {
		t.Errorf("pong: %+v", f)
	}
	s.must(sending("full", session, "one too many"))
	if f := s.next("error"); f.ReplyTo != "full" || f.code != "session_busy" {
		t.Errorf("%+v", f)
	}
	s.must(map[string]any{"type": "cancel", "id": "c", "sessionId": session, "messageId": sent.MessageID})
	var cancelled, next bool
	for !cancelled || !next {
		switch f := s.any(); {
		case f.Type == "cancelled" && f.ReplyTo == "c":
			cancelled = true
			if f.Message.Status != "cancelled" || f.Message.MessageID != sent.MessageID || c.ctx.Err() == nil {
				t.Errorf("cancelled: %+v", f)
			}
		case f.Type == "sent" && f.ReplyTo == "1":
			next = true
		default:
			t.Fatalf("%+v", f)
		}
	}
	t.Run("queued_sends_withdrawn_when_socket_closes", func(t *testing.T) {
		c := model.next(t)
		if err := s.conn.CloseNow(); err != nil {
			t.Fatal(err)
		}
		// When the server notices the close, the queued sends leave the queue, and another send fits.
		for {
			a := p.call("POST", messages(session), content("x", "onBusy", "interrupt", "streaming", true))
			if a.status == 200 {
				break
			}
			checkError(t, a, 409, "session_busy", "")
		}
		within(t, "the end of the call", c.closed)
		for {
			c := model.next(t)
			if last := c.request.Messages[len(c.request.Messages)-1].Content; last == "x" {
				c.end()
				break
			}
			c.end()
		}
	})
}

func TestSocket_InvalidFrame_ErrorAndStaysOpen(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	p.send(session, "hello")
	before := p.snapshot(session)
	s := p.dial()
	for name, test := range map[string]struct{ frame, replyTo, code, field string }{
		"unknown_type":           {`{"type":"shout","id":"1"}`, "1", "validation_error", "type"},
		"no_type":                {`{"id":"1"}`, "1", "validation_error", "type"},
		"type_a_number":          {`{"type":1,"id":"1"}`, "1", "validation_error", "type"},
		"type_capitalised":       {`{"Type":"ping","id":"1"}`, "1", "validation_error", "Type"},
		"not_json":               {`hello`, "", "validation_error", ""},
		"not_an_object":          {`["ping"]`, "", "validation_error", ""},
		"empty":                  {``, "", "validation_error", ""},
		"unknown_field":          {`{"type":"ping","id":"1","colour":1}`, "1", "validation_error", "colour"},
		"duplicate_field":        {`{"type":"ping","id":"1","id":"1"}`, "1", "validation_error", "id"},
		"id_a_number":            {`{"type":"ping","id":1}`, "", "validation_error", "id"},
		"id_too_long":            {`{"type":"ping","id":"` + strings.Repeat("x", 129) + `"}`, "", "validation_error", "id"},
		"trailing_data":          {`{"type":"ping","id":"1"}{}`, "", "validation_error", ""},
		"nul":                    {`{"type":"send","id":"1","sessionId":"` + session + `","content":"\u0000"}`, "1", "validation_error", "content"},
		"subscribe_no_session":   {`{"type":"subscribe","id":"1"}`, "1", "validation_error", "sessionId"},
		"subscribe_malformed":    {`{"type":"subscribe","id":"1","sessionId":"x"}`, "1", "session_not_found", ""},
		"subscribe_unknown":      {`{"type":"subscribe","id":"1","sessionId":"` + noSession + `"}`, "1", "session_not_found", ""},
		"unsubscribe_no_session": {`{"type":"unsubscribe","id":"1"}`, "1", "validation_error", "sessionId"},
		"send_no_session":        {`{"type":"send","id":"1","content":"x"}`, "1", "validation_error", "sessionId"},
		"send_no_content":        {`{"type":"send","id":"1","sessionId":"` + session + `"}`, "1", "validation_error", "content"},
		"send_empty_content":     {`{"type":"send","id":"1","sessionId":"` + session + `","content":""}`, "1", "validation_error", "content"},
		"send_content_too_long":  {`{"type":"send","id":"1","sessionId":"` + session + `","content":"` + strings.Repeat("é", 10_001) + `"}`, "1", "validation_error", "content"},
		"send_role_assistant":    {`{"type":"send","id":"1","sessionId":"` + session + `","content":"x","role":"assistant"}`, "1", "validation_error", "role"},
		"send_streaming":         {`{"type":"send","id":"1","sessionId":"` + session + `","content":"x","streaming":true}`, "1", "validation_error", "streaming"},
		"send_unknown_session":   {`{"type":"send","id":"1","sessionId":"` + noSession + `","content":"x"}`, "1", "session_not_found", ""},
		"send_metadata_a_list":   {`{"type":"send","id":"1","sessionId":"` + session + `","content":"x","metadata":[]}`, "1", "validation_error", "metadata"},
		"send_on_busy_unknown":   {`{"type":"send","id":"1","sessionId":"` + session + `","content":"x","onBusy":"x"}`, "1", "validation_error", "onBusy"},
		"cancel_no_message":      {`{"type":"cancel","id":"1","sessionId":"` + session + `"}`, "1", "validation_error", "messageId"},
		"cancel_malformed":       {`{"type":"cancel","id":"1","sessionId":"` + session + `","messageId":"x"}`, "1", "message_not_found", ""},
		"cancel_unknown":         {`{"type":"cancel","id":"1","sessionId":"` + session + `","messageId":"` + noMessage + `"}`, "1", "message_not_found", ""},
		"send_over_the_window":   {`{"type":"send","id":"1","sessionId":"` + p.small(true) + `","content":"` + ofTokens(100) + `"}`, "1", "context_overflow", ""},
	} {
		t.Run("error_"+name, func(t *testing.T) {
			if err := s.text(test.frame); err != nil {
				t.Fatal(err)
			}
			f := s.next("error")
			if f.ReplyTo != test.replyTo || f.code != test.code || f.field != test.field || !strings.Contains(f.raw, `"requestId":"`) || !strings.Contains(f.raw, `"message":"`) {
				t.Errorf("got %s", f.raw)
			}
			s.must(map[string]any{"type": "ping"}) // a valid frame in between: ten invalid frames in a row would close the socket
			s.next("pong")
		})
	}
	if after := p.snapshot(session); after[:len(after)/2] != before[:len(after)/2] || len(p.history(session)) != 2 {
		t.Errorf("the frames changed the session:\n%s\n%s", before, after)
	}
}
