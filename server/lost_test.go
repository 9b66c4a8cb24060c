package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"parley/store/redis/redistest"
)

// lossyNodes has two nodes on one Redis. A test can make a proxy lose Redis' replies to the first node, after the commands have
// taken effect.
type lossyNodes struct {
	*parley
	other *parley
	model *directed
	proxy *redistest.Loser
}

// scriptsLoaded guards the loading of the scripts into the shared Redis. If a script were missing there, the lost reply would be
// the error NOSCRIPT, and the command would have had no effect.
var scriptsLoaded sync.Once

const aUser = "user_0123456789abcdef"

func newLossyNodes(t *testing.T) *lossyNodes {
	t.Parallel()
	server := shared.Server(t)
	url := fmt.Sprintf("%s/%d", server.URL, databases.Add(1))
	scriptsLoaded.Do(func() {
		p := startOn(t, newDatabase(t), echo)
		session := p.session()
		p.send(session, "hello")
		p.must("DELETE", messages(session), nil)
		p.must("DELETE", "/v1/sessions/"+session, nil)
	})
	x := &lossyNodes{model: newDirected(), proxy: redistest.NewLoser(t, server.Addr)}
	x.parley = startOn(t, "redis://"+x.proxy.Addr+strings.TrimPrefix(url, server.URL), x.model)
	x.other = startOn(t, url, x.model)
	return x
}

// lose makes a request that takes effect but gets a 503: the proxy loses Redis' replies to all commands that contain marker.
func (x *lossyNodes) lose(marker, method, path string, body any, headers ...string) {
	x.t.Helper()
	x.proxy.LoseRepliesTo(marker)
	defer x.proxy.Heal()
	if got := x.call(method, path, body, headers...); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		x.t.Fatalf("%s %s: %d %s", method, path, got.status, got.raw)
	}
}

// exchange sends a message through the other node and checks the reply.
func (x *lossyNodes) exchange(session, text string) {
	x.t.Helper()
	answered := x.other.later("POST", messages(session), content(text))
	x.model.answer(x.t, "to "+text)
	if m := decodeInto[message](x.t, within(x.t, "the response", answered)); m.Content != "to "+text || m.Status != "completed" {
		x.t.Errorf("%+v", m)
	}
}

// answer waits for the model's next call and replies to it with text.
func (m *directed) answer(t testing.TB, text string) {
	t.Helper()
	c := m.next(t)
	c.say(text)
	c.end()
}

// wantCounts checks the number of messages and the number of calls to the model. It also checks that the tokens of each reply
// count once.
func (x *lossyNodes) wantCounts(session string, messages, calls int) {
	x.t.Helper()
	s := x.must("GET", "/v1/sessions/"+session, nil)
	total := 0.0
	for _, m := range x.history(session) {
		if m.Usage != nil {
			total += m.Usage["total"].(float64)
		}
	}
	if s["messageCount"] != float64(messages) || s["tokenUsage"].(map[string]any)["total"] != total {
		x.t.Errorf("the session is %v, but the replies took %v tokens", s, total)
	}
	used := x.must("GET", "/v1/analytics/usage", nil)["tokens"].(map[string]any)["used"]
	if used != total {
		x.t.Errorf("the account has used %v tokens, the replies %v", used, total)
	}
	if n := x.model.asked.Load(); n != int64(calls) {
		x.t.Errorf("the model was called %d times, want %d", n, calls)
	}
}

func TestSend_LostResponse_RepeatsGetOneReply(t *testing.T) {
	x := newLossyNodes(t)
	session := x.session()
	x.lose(session, "POST", messages(session), content("hello"), "Idempotency-Key", "one")
	var repeats []<-chan answer
	for i := range 6 {
		repeats = append(repeats, []*parley{x.parley, x.other}[i%2].later("POST", messages(session), content("hello"), "Idempotency-Key", "one"))
	}
	x.model.answer(t, "once")
	for _, repeat := range repeats {
		got := within(t, "a response", repeat)
		if m := decodeInto[message](t, got); got.status != 200 || m.Content != "once" || m.Status != "completed" || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%d %s", got.status, got.raw)
		}
	}
	x.wantCounts(session, 2, 1)
	x.exchange(session, "again")
	x.wantCounts(session, 4, 2)
}

func TestSend_LostResponseWithoutKey_RepeatIsNewMessage(t *testing.T) {
	x := newLossyNodes(t)
	session := x.session()
	x.lose(session, "POST", messages(session), content("hello"))
	next := x.other.later("POST", messages(session), content("hello"))
	x.model.answer(t, "the first")
	x.model.answer(t, "the second")
	if m := decodeInto[message](t, within(t, "the response", next)); m.Content != "the second" {
		t.Errorf("%+v", m)
	}
	x.wantCounts(session, 4, 2)
}

func TestEndTurn_LostResponse_ReplyEndsOnce(t *testing.T) {
	x := newLossyNodes(t)
	session := x.session()
	watching := x.other.dial()
	watching.mustSubscribe(session, "")
	waiting := x.later("POST", messages(session), content("hello"), "Idempotency-Key", "one")
	c := x.model.next(t)
	c.say("once")
	x.proxy.LoseRepliesTo(session)
	c.end()
	if got := within(t, "the waiting caller's response", waiting); got.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", got.status, got.raw)
	}
	x.proxy.Heal()
	for _, p := range []*parley{x.parley, x.other} {
		var got answer
		p.poll("the response to the repeat", func() bool { // within a second, the node tries again to end the turn
			got = p.call("POST", messages(session), content("hello"), "Idempotency-Key", "one")
			return got.status != http.StatusServiceUnavailable
		})
		if m := decodeInto[message](t, got); got.status != 200 || m.Content != "once" || m.Status != "completed" {
			t.Errorf("%d %s", got.status, got.raw)
		}
	}
	watching.until("message.completed")
	x.wantCounts(session, 2, 1)
	x.exchange(session, "again")
	if f := watching.until("message.completed"); f.Message.Content != "to again" {
		t.Errorf("the viewer got the end of another reply: %+v", f)
	}
}

func TestCreateSession_LostResponse_OneSession(t *testing.T) {
	x := newLossyNodes(t)
	body := map[string]any{"userId": aUser}
	x.lose(aUser, "POST", "/v1/sessions", body, "Idempotency-Key", "one")
	for i := range 2 {
		got := x.call("POST", "/v1/sessions", body, "Idempotency-Key", "one")
		if got.status != 200 || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("repeat %d: %d %s", i, got.status, got.raw)
		}
	}
	if all := x.must("GET", "/v1/sessions", nil)["data"].([]any); len(all) != 1 {
		t.Errorf("there are %d sessions", len(all))
	}
	if active := x.must("GET", "/v1/analytics/usage", nil)["sessions"].(map[string]any)["active"]; active != 1.0 {
		t.Errorf("%v sessions are counted", active)
	}
}

func TestClear_LostResponse_RepeatSucceeds(t *testing.T) {
	t.Parallel()
	for name, live := range map[string]bool{"idle": false, "in_mid_reply": true} {
		t.Run(name, func(t *testing.T) {
			x := newLossyNodes(t)
			session := x.session()
			watching := x.dial()
			x.exchange(session, "hello")
			watching.mustSubscribe(session, "")
			var c *call
			if live {
				x.begin(session, "go on")
				c = x.model.next(t)
			}
			x.lose(session, "DELETE", messages(session), nil)
			if live {
				within(t, "the end of the live reply", c.closed)
			}
			repeat := x.call("DELETE", messages(session), nil)
			if n := map[bool]float64{false: 0, true: 4}[live]; repeat.status != 200 || repeat.body["cleared"] != n {
				t.Errorf("the repeat: %d %s", repeat.status, repeat.raw)
			}
			watching.until("session.cleared")
			x.exchange(session, "again")
			if all := x.history(session); len(all) != 2 || all[1].Content != "to again" {
				t.Errorf("%+v", all)
			}
		})
	}
}

func TestDeleteSession_LostResponse_SessionDeleted(t *testing.T) {
	x := newLossyNodes(t)
	session := x.session()
	here, there := x.dial(), x.other.dial()
	here.mustSubscribe(session, "")
	there.mustSubscribe(session, "")
	x.begin(session, "hello")
	c := x.model.next(t)
	x.lose(session, "DELETE", "/v1/sessions/"+session, nil)
	within(t, "the end of the model's request", c.closed)
	for name, s := range map[string]*socket{"here": here, "there": there} {
		s.until("session.deleted")
		if again := x.call("DELETE", "/v1/sessions/"+session, nil); again.status != 404 || code(again.body) != "session_not_found" {
			t.Errorf("%s: %d %s", name, again.status, again.raw)
		}
	}
	if used := fmt.Sprint(x.must("GET", "/v1/analytics/usage", nil)["tokens"].(map[string]any)["used"]); used == "0" {
		t.Error("the usage of the cancelled reply is not counted")
	}
}
