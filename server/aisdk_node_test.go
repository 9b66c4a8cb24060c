package server_test

import (
	"fmt"
	"strings"
	"testing"

	"parley/stream"
)

// The tests of this file check what a web page with the real AI SDK shows.

// TestAISDK_Send_WholeReplyShown also checks the order of the frames.
func TestAISDK_Send_WholeReplyShown(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.command(map[string]any{"do": "send", "chat": "a", "text": "hello", "metadata": map[string]any{"priority": "high"}})
	c := model.next(t)
	if n := len(c.request.Messages); n != 1 || c.request.Messages[0].Content != "hello" {
		t.Errorf("the model got %+v", c.request.Messages)
	}
	c.say("Grüße, ")
	shown := d.shown("a", "hello", "Grüße, ")
	c.say("日本 🙂\n\"q\"")
	d.shown("a", "hello", "Grüße, 日本 🙂\n\"q\"")
	c.end()
	if e := d.done("send", "a"); e.Status != "ready" || e.Error != "" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}
	history := p.history(session)
	if len(history) != 2 || history[1].MessageID != shown[1].ID || history[0].Metadata["priority"] != "high" || history[0].Content != "hello" {
		t.Errorf("the history is %+v, but the page shows %+v", history, shown)
	}
	var kinds []string
	for i, f := range d.frames {
		kinds = append(kinds, f.Type+" "+f.Chunk.Type)
		if f.Type == "chunk" && f.Sequence != i {
			t.Errorf("frame %d has the sequence number %d", i, f.Sequence)
		}
	}
	if got := strings.Join(kinds, ", "); got != "chunk start, chunk text-start, chunk text-delta, chunk text-delta, chunk text-end, chunk finish, end " {
		t.Errorf("the frames were %s", got)
	}
}

func TestAISDK_SendAndRegenerate(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	p.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("Grüße")
	c.end()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("resume", "a")
	d.done("resume", "a")
	t.Run("send_stores_only_the_last_message", func(t *testing.T) {
		d.do("send", "a", "text", "and now?")
		c := model.next(t)
		if n := len(c.request.Messages); n != 3 || c.request.Messages[2].Content != "and now?" || c.request.Messages[1].Content != "Grüße" {
			t.Errorf("the model got %+v", c.request.Messages)
		}
		c.say("This.")
		c.finish(stream.Result{FinishReason: "content_filter"}, nil)
		if e := d.done("send", "a"); e.Status != "ready" || e.Finished.FinishReason != "content-filter" {
			t.Errorf("%+v", e)
		}
		if n := len(p.history(session)); n != 4 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("regenerate_repeats_the_last_user_message", func(t *testing.T) {
		d.do("regenerate", "a")
		c := model.next(t)
		if last := c.request.Messages[len(c.request.Messages)-1]; last.Content != "and now?" {
			t.Errorf("the model got %+v", last)
		}
		c.say("That.")
		c.end()
		d.shown("a", "Grüße", "and now?", "That.")
		if e := d.done("regenerate", "a"); e.Status != "ready" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("send_with_a_file_is_refused", func(t *testing.T) {
		d.do("sendFile", "a")
		if e := d.done("sendFile", "a"); e.Status != "error" || e.Error != "messages.parts must not have files: only text is supported." {
			t.Errorf("%+v", e)
		}
	})
}

func TestAISDK_ResumeAfterCutOrReload_NoTextTwice(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("send", "a", "text", "hello")
	c := model.next(t)
	c.say("One, ")
	shown := d.shown("a", "hello", "One, ")
	d.do("cut", "")
	if e := d.done("send", "a"); e.Status != "error" || !strings.Contains(e.Error, "network connection closed") {
		t.Errorf("after the cut: %+v", e)
	}
	c.say("two, ") // a cut connection does not cancel the reply
	d.do("resume", "a")
	again := d.shown("a", "hello", "One, two, ")
	c.say("three.")
	d.shown("a", "hello", "One, two, three.")

	reloaded := p.openSDKPage(t)
	reloaded.command(map[string]any{"do": "open", "chat": "b", "session": session, "messages": []any{
		map[string]any{"id": "from the history", "role": "user", "parts": []any{map[string]any{"type": "text", "text": "hello"}}},
		map[string]any{"id": shown[1].ID, "role": "assistant", "parts": []any{map[string]any{"type": "text", "text": "One, "}}},
	}})
	reloaded.done("open", "b")
	reloaded.do("resume", "b")
	loaded := reloaded.shown("b", "hello", "One, two, three.")
	c.say(" Four.")
	reloaded.shown("b", "hello", "One, two, three. Four.")
	d.shown("a", "hello", "One, two, three. Four.")
	c.end()
	for name, page := range map[string]*sdkPage{"a": d, "b": reloaded} {
		if e := page.done("resume", name); e.Status != "ready" || e.Finished.FinishReason != "stop" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if shown[1].ID != again[1].ID || shown[1].ID != loaded[1].ID {
		t.Errorf("the ids of the reply are %s, %s and %s, want one id", shown[1].ID, again[1].ID, loaded[1].ID)
	}
}

func TestAISDK_ThirtyCuts_EachCharacterShownOnce(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("send", "a", "text", "hello")
	c := model.next(t)
	text, last := "", "send"
	for i := range 30 {
		part := fmt.Sprintf("part %d, Grüße 🙂 日本\n", i)
		text += part
		c.say(part)
		d.shown("a", "hello", text)
		d.do("cut", "")
		if e := d.done(last, "a"); e.Status != "error" {
			t.Fatalf("cut %d: %+v", i, e)
		}
		last = "resume"
		d.do(last, "a")
	}
	d.shown("a", "hello", text)
	c.end()
	if e := d.done(last, "a"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}
	if h := p.history(session); len(h) != 2 || h[1].Content != text || h[1].Status != "completed" {
		t.Errorf("%+v", h)
	}
}

func TestAISDK_ResumeAfterReply_ReplyShownIfUnseen(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	session := p.session()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("send", "a", "text", "hello")
	shown := d.shown("a", "hello", "You said: hello")
	d.done("send", "a")
	t.Run("unseen_reply_is_shown", func(t *testing.T) {
		late := p.openSDKPage(t)
		late.open("c", session)
		late.do("resume", "c")
		if got := late.shown("c", "You said: hello"); got[0].ID != shown[1].ID {
			t.Errorf("%+v", got)
		}
		if e := late.done("resume", "c"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
			t.Errorf("%+v", e)
		}
	})
	t.Run("seen_or_missing_reply_gets_no_active", func(t *testing.T) {
		for name, session := range map[string]string{"a": session, "empty": p.session()} {
			if name == "empty" {
				d.open(name, session)
			}
			d.frames = nil
			d.do("resume", name)
			if e := d.done("resume", name); e.Status != "ready" || len(d.frames) != 1 || d.frames[0].Type != "no-active" {
				t.Errorf("%s: %+v after %+v", name, e, d.frames)
			}
		}
	})
}

func TestAISDK_SendFrameOver1MiB_Closed1009(t *testing.T) {
	t.Parallel()
	p := start(t, echo)
	d := p.openSDKPage(t)
	for name, c := range map[string]struct {
		size int
		want string
	}{"large": {1<<20 - 4096, ""}, "too large": {1 << 20, "WebSocket chat network connection closed (code 1009"}} {
		session := p.session()
		d.command(map[string]any{"do": "open", "chat": name, "session": session, "messages": []any{
			map[string]any{"id": "a", "role": "assistant", "parts": []any{map[string]any{"type": "text", "text": strings.Repeat("x", c.size)}}},
		}})
		d.done("open", name)
		d.do("send", name, "text", "hello")
		if e := d.done("send", name); !strings.HasPrefix(e.Error, c.want) || (c.want == "") != (e.Status == "ready") {
			t.Errorf("%s: %+v", name, e)
		}
		h := p.history(session)
		if c.want == "" && (len(h) != 2 || h[0].Content != "hello") || c.want != "" && len(h) != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestAISDK_ErrorInOneChat_OtherChatGoesOn(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	one, two := p.session(), p.session()
	d := p.openSDKPage(t)
	d.open("one", one)
	d.open("two", two)
	d.do("send", "one", "text", "first")
	first := model.next(t)
	d.do("send", "two", "text", "second")
	second := model.next(t)
	for _, part := range []string{"a", "b", "c"} {
		first.say(part)
		second.say(strings.ToUpper(part))
	}
	first.finish(stream.Result{}, &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"})
	if e := d.done("send", "one"); e.Status != "error" || e.Error != "the model broke off" {
		t.Errorf("%+v", e)
	}
	second.say("D") // the error ended the other chat's request, not the socket
	second.end()
	d.shown("two", "second", "ABCD")
	if e := d.done("send", "two"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}
	for _, f := range d.frames {
		if f.Chunk.FinishReason != "" && f.Chunk.FinishReason != "stop" {
			t.Errorf("%+v", f)
		}
	}
	d.do("send", "two", "text", "again")
	c := model.next(t)
	c.end()
	if e := d.done("send", "two"); e.Status != "ready" {
		t.Errorf("%+v", e)
	}
}

func TestAISDK_Stop_CancelsReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	for _, how := range []string{"send", "resume"} {
		t.Run("after_"+how, func(t *testing.T) {
			session := p.session()
			d := p.openSDKPage(t)
			d.open("a", session)
			if how == "send" {
				d.do("send", "a", "text", "hello")
			} else {
				p.begin(session, "hello")
				d.do("resume", "a")
			}
			c := model.next(t)
			c.say("Half of")
			d.until("the text", func(e driverEvent) bool {
				return e.Event == "shown" && e.Messages[len(e.Messages)-1].Text == "Half of"
			})
			d.do("stop", "a")
			if e := d.done(how, "a"); e.Status != "ready" || how == "send" && !e.Finished.IsAbort {
				t.Errorf("%+v", e)
			}
			within(t, "the end of the model's request", c.closed)
			d.until("the end", func(e driverEvent) bool { return e.Event == "received" && strings.HasPrefix(e.Frame, `{"type":"end"`) })
			if f := d.frames[len(d.frames)-2]; f.Chunk.Type != "abort" {
				t.Errorf("before the end, the page got %+v", f)
			}
			if m := p.history(session)[1]; m.Status != "cancelled" || m.Content != "Half of" {
				t.Errorf("%+v", m)
			}
		})
	}
}

// If a page resumes a chat twice, the AI SDK aborts the first resume. That abort must not cancel the reply.
func TestAISDK_ResumeTwice_ReplyGoesOn(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	p.begin(session, "hello")
	c := model.next(t)
	c.say("One, ")
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("resumeTwice", "a")
	d.until("an abort", func(e driverEvent) bool { return e.Event == "sent" && strings.HasPrefix(e.Frame, `{"type":"abort"`) })
	d.shown("a", "One, ")
	goesOn := make(chan struct{})
	go func() { defer close(goesOn); c.say("two.") }()
	within(t, "more of the reply", goesOn)
	d.shown("a", "One, two.")
	c.end()
	if e := d.done("resumeTwice", "a"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}
	if m := p.history(session)[1]; m.Status != "completed" || m.Content != "One, two." {
		t.Errorf("%+v", m)
	}
}

func TestAISDK_FailedReplyOrUnknownSession_ShowsError(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	d := p.openSDKPage(t)
	d.open("a", session)
	d.do("send", "a", "text", "hello")
	c := model.next(t)
	c.say("Half of")
	d.shown("a", "hello", "Half of")
	c.finish(stream.Result{}, &stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"})
	if e := d.done("send", "a"); e.Status != "error" || e.Error != "the model broke off" {
		t.Errorf("%+v", e)
	}
	d.open("nowhere", "session_0000000000000000")
	d.do("send", "nowhere", "text", "hello")
	if e := d.done("send", "nowhere"); e.Status != "error" || e.Error != "The session does not exist or has expired." {
		t.Errorf("%+v", e)
	}
	d.do("resume", "nowhere")
	if e := d.done("resume", "nowhere"); e.Status != "error" || e.Error != "The session does not exist or has expired." {
		t.Errorf("%+v", e)
	}
}

func TestAISDK_ResumeOnOtherNode_ShowsAndCancelsReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	session := a.session()
	begun := a.begin(session, "hello")
	c := model.next(t)
	c.say("Written there, ")
	d := b.openSDKPage(t)
	d.open("a", session)
	d.do("resume", "a")
	d.shown("a", "Written there, ")
	c.say("shown here.")
	if got := d.shown("a", "Written there, shown here."); got[0].ID != begun["messageId"] {
		t.Errorf("%+v", got)
	}
	c.end()
	if e := d.done("resume", "a"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}

	begun = a.begin(session, "and again")
	c = model.next(t)
	c.say("Half of")
	d.do("resume", "a")
	d.until("the text", func(e driverEvent) bool { return e.Event == "shown" && e.Messages[len(e.Messages)-1].Text == "Half of" })
	d.do("stop", "a")
	within(t, "the end of the model's request", c.closed)
	d.until("the end", func(e driverEvent) bool { return e.Event == "received" && strings.HasPrefix(e.Frame, `{"type":"end"`) })
	if m := a.must("GET", messages(session)+"/"+begun["messageId"].(string), nil); m["status"] != "cancelled" {
		t.Errorf("%+v", m)
	}
}

func TestAISDK_ResumeOverServerSentEvents_ShowsReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	p := start(t, model)
	session := p.session()
	reply := p.begin(session, "hello")["messageId"].(string)
	c := model.next(t)
	c.say("Grüße, ")
	d := p.openSDKPage(t)
	d.do("openEvents", "a", "session", session, "reply", reply)
	d.done("openEvents", "a")
	d.do("resume", "a")
	d.shown("a", "Grüße, ")
	c.say("日本 🙂")
	c.end()
	if got := d.shown("a", "Grüße, 日本 🙂"); got[0].ID != reply {
		t.Errorf("%+v", got)
	}
	if e := d.done("resume", "a"); e.Status != "ready" || e.Finished.FinishReason != "stop" {
		t.Errorf("%+v", e)
	}
}
