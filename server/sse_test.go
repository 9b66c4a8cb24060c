package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// event is a server-sent event, or a comment.
type event struct {
	name, id, data, comment string
	raw                     string
}

// events is a stream of server-sent events.
type events struct {
	t        *testing.T
	response *http.Response
	in       *bufio.Reader
}

// events opens the event stream of a reply. It starts after the event lastID, or at the beginning if lastID is "".
func (p *parley) events(t *testing.T, session, reply, lastID string) *events {
	t.Helper()
	request, err := http.NewRequest("GET", p.url+messages(session)+"/"+reply+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" || response.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s %v", response.Status, response.Header)
	}
	return &events{t: t, response: response, in: bufio.NewReader(response.Body)}
}

// next returns the next event; ok is false at the end of the stream.
func (e *events) next() (got event, ok bool) {
	e.t.Helper()
	for {
		line, err := e.in.ReadString('\n')
		if err == io.EOF && got.raw == "" {
			return event{}, false
		}
		if err != nil {
			e.t.Fatalf("%v after %q", err, got.raw)
		}
		got.raw += line
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			return got, true
		case name == "event":
			got.name = value
		case name == "id":
			got.id = value
		case name == "data":
			got.data = value
		case name == "":
			got.comment = line
		default:
			e.t.Fatalf("the line %q", line)
		}
	}
}

// want returns the next event that is not a comment. The event must have this name, and the data must be a frame of this type.
func (e *events) want(name string) event {
	e.t.Helper()
	got, ok := e.next()
	for ok && got.comment != "" {
		got, ok = e.next()
	}
	var f frame
	if !ok || got.name != name || json.Unmarshal([]byte(got.data), &f) != nil || f.Type != name || f.Cursor != got.id {
		e.t.Fatalf("got %q, want %s", got.raw, name)
	}
	return got
}

// ends checks that the stream has no more events.
func (e *events) ends() {
	e.t.Helper()
	if got, ok := e.next(); ok {
		e.t.Errorf("the stream went on with %q", got.raw)
	}
}

func TestEvents_StreamAndResume(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	reply := p.begin(session, "hello")["messageId"].(string)
	c := model.next(t)
	const text = "Grüße, 日本 🙂\nzwei\r\n\"q\" "
	e := p.events(t, session, reply, "")
	all := []event{e.want("message.created")}
	for _, r := range text {
		c.say(string(r))
		all = append(all, e.want("message.delta"))
	}
	c.end()
	all = append(all, e.want("message.completed"))
	e.ends()

	t.Run("200_resumes_after_every_event", func(t *testing.T) {
		for i := range len(all) - 1 {
			e := p.events(t, session, reply, all[i].id)
			var joined strings.Builder
			for _, seen := range all[:i+1] {
				joined.WriteString(delta(t, seen))
			}
			got, _ := e.next()
			for got.comment != "" {
				got, _ = e.next()
			}
			if i < len(all)-2 {
				if got.name != "message.delta" {
					t.Fatalf("after event %d came %q", i, got.raw)
				}
				joined.WriteString(delta(t, got))
				got = e.want("message.completed")
			}
			if got.raw != all[len(all)-1].raw || joined.String() != text {
				t.Errorf("resumed after event %d: the text is %q, and the last event %q", i, joined.String(), got.raw)
			}
			e.ends()
		}
	})
	t.Run("200_from_the_beginning", func(t *testing.T) {
		e := p.events(t, session, reply, "")
		if got := e.want("message.created"); got.raw != all[0].raw {
			t.Errorf("%q, want %q", got.raw, all[0].raw)
		}
		if got := delta(t, e.want("message.delta")); got != text {
			t.Errorf("%q", got)
		}
		e.want("message.completed")
		e.ends()
	})
	path := messages(session) + "/" + reply + "/stream"
	t.Run("204_after_the_last_event", func(t *testing.T) {
		a := p.call("GET", path, nil, "Last-Event-ID", all[len(all)-1].id)
		if a.status != 204 || a.raw != "" {
			t.Errorf("%d %s", a.status, a.raw)
		}
		p.later("POST", messages(session), content("more"))
		model.next(t)
		newest := p.must("GET", messages(session), nil)["stream"].(map[string]any)["cursor"].(string)
		if a := p.call("GET", path, nil, "Last-Event-ID", newest); a.status != 204 {
			t.Errorf("with the cursor of a later message: %d %s", a.status, a.raw)
		}
	})
	t.Run("204_for_a_users_message", func(t *testing.T) {
		if a := p.call("GET", messages(session)+"/"+p.history(session)[0].MessageID+"/stream", nil); a.status != 204 {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
	refusals{
		"400_unknown_format":   {"GET", path + "?format=xml", nil, nil, 400, "validation_error", "format"},
		"400_empty_format":     {"GET", path + "?format=", nil, nil, 400, "validation_error", "format"},
		"400_malformed_cursor": {"GET", path, nil, []string{"Last-Event-ID", "7"}, 400, "validation_error", "Last-Event-ID"},
		"400_foreign_cursor":   {"GET", path, nil, []string{"Last-Event-ID", "0000." + reply + ".0"}, 400, "validation_error", "Last-Event-ID"},
	}.run(t, p, session)
}

// delta returns the text that an event adds.
func delta(t *testing.T, e event) string {
	t.Helper()
	var f frame
	if err := json.Unmarshal([]byte(e.data), &f); err != nil {
		t.Fatal(err)
	}
	return f.Delta
}

func TestEvents_SessionDeletedOrCleared_StreamEnds(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	for name, end := range map[string]func(session string) string{
		"session.deleted": func(session string) string { return "/v1/sessions/" + session },
		"session.cleared": messages,
	} {
		t.Run(name, func(t *testing.T) {
			session := p.session()
			reply := p.begin(session, "hello")["messageId"].(string)
			c := model.next(t)
			c.say("Half of")
			e := p.events(t, session, reply, "")
			e.want("message.created")
			last := e.want("message.delta")
			p.must("DELETE", end(session), nil)
			if got, ok := e.next(); !ok || got.name != name {
				t.Errorf("got %q", got.raw)
			}
			e.ends()
			within(t, "the end of the model's request", c.closed)
			a := p.call("GET", messages(session)+"/"+reply+"/stream", nil, "Last-Event-ID", last.id)
			if a.status != 404 {
				t.Errorf("%d %s", a.status, a.raw)
			}
		})
	}
}

func TestEvents_Idle_CommentEvery15s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := newDirected()
		p := startPiped(t, model)
		session := p.session()
		reply := p.begin(session, "hello")["messageId"].(string)
		c := model.next(t)
		e := p.events(t, session, reply, "")
		began := time.Now()
		for _, comment := range []string{": parley.v1\n", ""} {
			if got, ok := e.next(); !ok || got.comment != comment {
				t.Fatalf("got %q", got.raw)
			}
		}
		got, _ := e.next()
		if took := time.Since(began); got.raw != ":\n\n" || took != 15*time.Second {
			t.Errorf("after %v came %q", took, got.raw)
		}
		c.end()
		if got := delta(t, e.want("message.delta")); got != done {
			t.Errorf("%q", got)
		}
		e.want("message.completed")
		e.ends()
	})
}

func TestEvents_ClientLeaves_ReplyGoesOn(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	reply := p.begin(session, "hello")["messageId"].(string)
	c := model.next(t)
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, "GET", messages(session)+"/"+reply+"/stream", nil)
		left <- err
	}()
	c.say("Half of ")
	leave()
	within(t, "the viewer to leave", left)
	c.say("a reply.")
	c.end()
	e := p.events(t, session, reply, "")
	e.want("message.created")
	if got := delta(t, e.want("message.delta")); got != "Half of a reply." {
		t.Errorf("%q", got)
	}
}
