package server_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
	"parley/store/redis/redistest"
	"parley/stream"
)

// nodes starts two nodes with the same model on one Redis store.
func nodes(t *testing.T, model stream.Model, options ...option) (a, b *parley) {
	t.Helper()
	url := newDatabase(t)
	return startOn(t, url, model, options...), startOn(t, url, model, options...)
}

func TestNodes_ViewOnOtherNode_GetsEveryByte(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	session := a.session()
	idle, live, late := b.dial(), b.dial(), b.dial()
	idle.mustSubscribe(session, "")
	begun := a.begin(session, "hello")
	c := model.next(t)
	cursor := begun["stream"].(map[string]any)["cursor"].(string)
	live.mustSubscribe(session, cursor)
	want := ""
	for i := range 40 {
		part := fmt.Sprintf("part %d, Grüße 🙂 日本 ", i)
		c.say(part)
		want += part
	}
	if text := live.deltas(t, len(want)); text != want {
		t.Errorf("the viewer on the other node got %q", text)
	}
	c.say("end")
	want += "end"
	c.end()
	late.mustSubscribe(session, cursor)
	if f := idle.next("message.created"); f.Message.Role != "user" || f.Message.Content != "hello" {
		t.Errorf("the idle viewer first got %+v", f.Message)
	}
	for name, s := range map[string]*socket{"idle": idle, "late": late} {
		if f := s.next("message.created"); f.Message.MessageID != begun["messageId"] || f.Message.Status != "streaming" || f.Message.Content != "" {
			t.Errorf("%s: %+v", name, f)
		}
		if text := s.deltas(t, len(want)); text != want {
			t.Errorf("%s saw %q", name, text)
		}
	}
	if text := live.deltas(t, len("end")); text != "end" {
		t.Errorf("in the end, the live viewer got %q", text)
	}
	for name, s := range map[string]*socket{"idle": idle, "live": live, "late": late} {
		if f := s.next("message.completed"); f.Message.Content != want || f.Message.FinishReason != "stop" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if m := b.must("GET", messages(session)+"/"+begun["messageId"].(string), nil); m["content"] != want || m["status"] != "completed" {
		t.Errorf("the other node's history has %v", m)
	}
}

// wokenOnly wraps conversation.Nodes. A node with a wokenOnly polls only after a wake-up, never by timer.
type wokenOnly struct {
	conversation.Nodes
	woken chan struct{} // capacity 1; receives a value at each wake-up
}

func (n *wokenOnly) Join(ctx context.Context, notify func(string)) error {
	return n.Nodes.Join(ctx, func(session string) {
		select {
		case n.woken <- struct{}{}:
		default:
		}
		notify(session)
	})
}

func (n *wokenOnly) Poll(ctx context.Context, followed []conversation.Followed) ([]conversation.Update, error) {
	select {
	case <-n.woken:
		return n.Nodes.Poll(ctx, followed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestNodes_ReplyBegins_ViewersNodeWokenUp has a viewer on node b, which polls only after a wake-up. The reply begins on node a,
// which must send the wake-up. A busy Redis Cluster may lose one wake-up, so the model sends text until the viewer gets a delta.
func TestNodes_ReplyBegins_ViewersNodeWokenUp(t *testing.T) {
	t.Parallel()
	model := newDirected()
	url := newDatabase(t)
	a := startOn(t, url, model)
	b := startOn(t, url, model, func(_ *server.Options, o *service.Options) {
		o.Nodes = &wokenOnly{o.Nodes, make(chan struct{}, 1)}
	})
	session := a.session()
	viewer := b.dial()
	viewer.mustSubscribe(session, "")
	a.begin(session, "hello")
	c := model.next(t)
	shown, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C { // slow, so that the text does not reach its limit
			select {
			case c.text <- "word ":
			case <-shown:
				tick.Stop()
				return
			}
		}
	}()
	viewer.until("message.delta")
	close(shown)
	<-stopped
	c.end()
	viewer.until("message.completed")
}

// deltas reads deltas until they have n bytes in total, and returns their text. Text that is missing between two deltas ends the
// test. Only message.created may come before the first delta.
func (s *socket) deltas(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	at := -1
	for text.Len() < n {
		f, err := s.read()
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == "message.created" && at < 0 {
			continue
		}
		if f.Type != "message.delta" || at >= 0 && f.Offset != at {
			t.Fatalf("after %d of %d bytes came %+v", text.Len(), n, f)
		}
		text.WriteString(f.Delta)
		at = f.Offset + len(f.Delta)
	}
	return text.String()
}

func TestNodes_ViewerSwitchesNodes_MissesNothing(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	session := a.session()
	begun := a.begin(session, "hello")
	c := model.next(t)
	cursor := begun["stream"].(map[string]any)["cursor"].(string)
	want, got, at := "", "", 0
	for i := range 10 {
		node := []*parley{a, b}[i%2]
		part := fmt.Sprintf("hop %d äöü ", i)
		c.say(part)
		want += part
		s := node.dial()
		s.mustSubscribe(session, cursor)
		for len(got) < len(want) {
			f, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if f.Type == "message.delta" {
				if f.Offset != at {
					t.Fatalf("hop %d: a delta at %d, want %d", i, f.Offset, at)
				}
				got += f.Delta
				at += len(f.Delta)
			}
			cursor = f.Cursor
		}
		_ = s.conn.CloseNow()
	}
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.end()
	s := b.dial()
	s.mustSubscribe(session, cursor)
	if f := s.next("message.completed"); f.Message.Content != want {
		t.Errorf("%+v", f)
	}
}

func TestNodes_StopOnOtherNode_ReplyEnds(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	t.Run("200_cancel_after_models_request_closed", func(t *testing.T) {
		session := a.session()
		begun := a.begin(session, "hello")
		c := model.next(t)
		c.say("Half of")
		cancelled := b.call("POST", messages(session)+"/"+begun["messageId"].(string)+"/cancel", nil)
		select {
		case <-c.closed:
		default:
			t.Error("the cancel got its response before the model's request was closed")
		}
		if m := decodeInto[message](t, cancelled); cancelled.status != 200 || m.Status != "cancelled" || m.Content != "Half of" {
			t.Errorf("%d %s", cancelled.status, cancelled.raw)
		}
	})
	t.Run("200_interrupting_send", func(t *testing.T) {
		session := a.session()
		begun := a.begin(session, "hello")
		c := model.next(t)
		c.say("Half of")
		answered := b.later("POST", messages(session), content("now", "onBusy", "interrupt"))
		next := model.next(t)
		within(t, "the end of the interrupted reply", c.closed)
		next.say("Here")
		next.end()
		if m := decodeInto[message](t, within(t, "the response", answered)); m.Content != "Here" {
			t.Errorf("%+v", m)
		}
		if m := b.must("GET", messages(session)+"/"+begun["messageId"].(string), nil); m["status"] != "cancelled" || m["content"] != "Half of" {
			t.Errorf("%v", m)
		}
	})
	t.Run("200_clear", func(t *testing.T) {
		session := a.session()
		here, there := a.dial(), b.dial()
		here.mustSubscribe(session, "")
		there.mustSubscribe(session, "")
		a.begin(session, "hello")
		c := model.next(t)
		c.say("Half of")
		if cleared := b.must("DELETE", messages(session), nil); cleared["cleared"] != 2.0 {
			t.Errorf("%v", cleared)
		}
		within(t, "the end of the cleared reply", c.closed)
		here.until("session.cleared")
		there.until("session.cleared")
	})
	t.Run("200_delete", func(t *testing.T) {
		session := a.session()
		here, there := a.dial(), b.dial()
		here.mustSubscribe(session, "")
		there.mustSubscribe(session, "")
		a.begin(session, "hello")
		c := model.next(t)
		b.must("DELETE", "/v1/sessions/"+session, nil)
		within(t, "the end of the deleted reply", c.closed)
		here.until("session.deleted")
		there.until("session.deleted")
	})
}

// until reads up to the next frame of the type kind, and returns that frame.
func (s *socket) until(kind string) frame {
	s.t.Helper()
	for {
		f, err := s.read()
		if err != nil {
			s.t.Fatalf("before %s: %v", kind, err)
		}
		if f.Type == kind {
			return f
		}
	}
}

func TestNodes_TwentySendsAtOnce_RepliesOneByOne(t *testing.T) {
	t.Parallel()
	var live, most atomic.Int32
	model := modelFunc(func(_ context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
		n := live.Add(1)
		defer live.Add(-1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		write([]byte("to " + request.Messages[len(request.Messages)-1].Content))
		return stream.Result{FinishReason: "stop"}, nil
	})
	a, b := nodes(t, model)
	session := a.session()
	var sends sync.WaitGroup
	for i := range 20 {
		node := []*parley{a, b}[i%2]
		sends.Go(func() {
			text := fmt.Sprint("send ", i)
			answer := node.call("POST", messages(session), content(text))
			if m := decodeInto[message](t, answer); answer.status != 200 || m.Content != "to "+text {
				t.Errorf("%s: %d %s", text, answer.status, answer.raw)
			}
		})
	}
	sends.Wait()
	if most.Load() != 1 {
		t.Errorf("%d replies of the session were live at once", most.Load())
	}
	history := b.must("GET", messages(session)+"?order=asc&limit=100", nil)["data"].([]any)
	if len(history) != 40 {
		t.Fatalf("%d messages", len(history))
	}
	for i := 0; i < len(history); i += 2 {
		asked, reply := history[i].(map[string]any), history[i+1].(map[string]any)
		if reply["content"] != "to "+asked["content"].(string) {
			t.Errorf("the reply to %v is %v", asked["content"], reply["content"])
		}
	}
}

func TestNodes_OneIdempotencyKey_OneReply(t *testing.T) {
	t.Parallel()
	model := newDirected()
	a, b := nodes(t, model)
	session := a.session()
	var answers []<-chan answer
	for i := range 10 {
		answers = append(answers, []*parley{a, b}[i%2].later("POST", messages(session), content("hello"), "Idempotency-Key", "one"))
	}
	c := model.next(t)
	c.say("one reply")
	c.end()
	ids, fresh := make(map[string]bool), 0
	for _, from := range answers {
		got := within(t, "a response", from)
		m := decodeInto[message](t, got)
		if got.status != 200 || m.Content != "one reply" {
			t.Errorf("%d %s", got.status, got.raw)
		}
		ids[m.MessageID] = true
		if got.header.Get("Idempotent-Replayed") == "" {
			fresh++
		}
	}
	if len(ids) != 1 || fresh != 1 {
		t.Errorf("%d replies, %d that were not replayed", len(ids), fresh)
	}
}

func TestNodes_90RequestsAtOnce_60Pass(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, echo, withTiers(t, `{"pro":{"requestsPerMinute":60}}`))
	var passed atomic.Int32
	var requests sync.WaitGroup
	for i := range 90 {
		node := []*parley{a, b}[i%2]
		requests.Go(func() {
			got := node.call("GET", "/v1/sessions", nil)
			switch {
			case got.status == http.StatusOK:
				passed.Add(1)
			case got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || got.header.Get("X-RateLimit-Remaining") != "0":
				t.Errorf("%d %v", got.status, got.header)
			}
		})
	}
	requests.Wait()
	if passed.Load() != 60 {
		t.Errorf("%d requests passed, want 60", passed.Load())
	}
}

func TestNodes_RevokedKey_BothNodesRefuse(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, echo)
	key, secret := a.newKey("default", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.ReadSessions, auth.ReadMessages}})
	bearer := []string{"Authorization", "Bearer " + secret}
	tickets := make(map[*parley]string)
	for _, p := range []*parley{a, b} { // afterwards, both nodes have the key in their caches
		tickets[p] = p.call("POST", "/v1/stream/tickets", nil, bearer...).body["ticket"].(string)
		if got := p.call("GET", "/v1/sessions", nil, bearer...); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.raw)
		}
	}
	s, err := b.tryDial(b.url, websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}})
	if err != nil {
		t.Fatal(err)
	}
	s.next("welcome")
	a.must("DELETE", "/v1/keys/"+key.ID, nil)
	for name, p := range map[string]*parley{"a": a, "b": b} {
		if got := p.call("GET", "/v1/sessions", nil, bearer...); got.status != 401 {
			t.Errorf("node %s responds with %d %s, want 401", name, got.status, got.raw)
		}
		_, err := p.byTicket(tickets[p], false)
		checkRefusal(t, err, 401)
	}
	if _, err := s.read(); websocket.CloseStatus(err) != 4401 {
		t.Errorf("the socket on the other node: %v", err)
	}
}

func TestNodes_TicketUsedOnBothNodes_OpensOneSocket(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, echo)
	ticket := a.must("POST", "/v1/stream/tickets", map[string]any{})["ticket"].(string)
	opened := 0
	for _, p := range []*parley{b, a} {
		conn, response, err := websocket.Dial(context.Background(), p.url+"/v1/stream", &websocket.DialOptions{Subprotocols: []string{"parley.v1", "ticket." + ticket}})
		if err == nil {
			opened++
			_ = conn.CloseNow()
		} else if response == nil || response.StatusCode != 401 {
			t.Errorf("%v", err)
		}
	}
	if opened != 1 {
		t.Errorf("the ticket opened %d sockets", opened)
	}
}

// TestNodes_Summary_ShownOnceOnEachNode has a viewer on each node. Both must get the last summary once, and then the next reply.
func TestNodes_Summary_ShownOnceOnEachNode(t *testing.T) {
	t.Parallel()
	model := &summarising{}
	a, b := nodes(t, model)
	f := &summaryTest{parley: a, model: model, session: a.windowed(1000, "fifo")}
	here, there := a.dial(), b.dial()
	here.mustSubscribe(f.session, "")
	there.mustSubscribe(f.session, "")
	for i := range 6 {
		f.talk(fmt.Sprint("m", i))
	}
	var last []any
	for _, s := range []*socket{here, there} {
		// There are two summaries, of 8 messages and of 2 more. A poll may return both as one of 10 messages, and a viewer may
		// get only the last.
		for {
			got := s.any()
			if got.Type != "context.compressed" {
				continue
			}
			frame := decodeInto[map[string]any](t, answer{raw: got.raw})
			if n := frame["summarised"]; n == 2.0 || n == 10.0 {
				last = append(last, fmt.Sprint(frame["tokensBefore"], frame["tokensAfter"]))
				break
			}
		}
	}
	if last[0] != last[1] {
		t.Errorf("the nodes' events about the last summary differ: %v", last)
	}
	f.talk("m6")
	for name, s := range map[string]*socket{"a": here, "b": there} {
		for {
			got := s.any()
			if got.Type == "context.compressed" {
				t.Errorf("the viewer on node %s got the same summary twice: %s", name, got.raw)
			}
			if got.Type == "message.completed" && strings.Contains(got.raw, `"kept":{"count":13`) {
				break
			}
		}
	}
}

// TestNodes_CopyOfRedis_OpensNoSocket has an attacker who can read Redis. Earlier versions kept a key in Redis, with which the
// attacker could seal tickets that named any account, scopes and tier.
func TestNodes_CopyOfRedis_OpensNoSocket(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	sealingKey := strings.Repeat("k", 32)
	redis.Do("SET", "ticket-key", sealingKey)
	a, b := startOn(t, redis.URL+redistest.Patient, echo), startOn(t, redis.URL+redistest.Patient, echo)
	key, secret := a.newKey("acme", auth.Live, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.ReadMessages}})
	bearer := []string{"Authorization", "Bearer " + secret}
	ticket := a.call("POST", "/v1/stream/tickets", nil, bearer...).body["ticket"].(string)
	for name, value := range redis.Contents() {
		if strings.Contains(name, ticket) || strings.Contains(value, ticket) {
			t.Errorf("Redis contains the ticket: %s = %q", name, value)
		}
	}
	claims := auth.Principal{
		Account: "acme", Mode: auth.Live, Tier: limit.Enterprise, KeyID: key.ID, Scopes: []auth.Scope{auth.Admin}, Secret: key.Secrets[0].Hash,
	}
	foreign := claims
	foreign.Account = "victim"
	for what, p := range map[string]auth.Principal{"a higher tier and all scopes": claims, "another account": foreign} {
		if s, err := b.byTicket(sealedTicket(t, sealingKey, p), false); err == nil {
			t.Errorf("a ticket that claims %s opened a socket: %v", what, s.conn.Subprotocol())
		} else {
			checkRefusal(t, err, 401)
		}
		if got := b.call("GET", "/v1/sessions/"+noSession+"/messages", nil, bearer...); got.status != 404 {
			t.Errorf("after a ticket that claims %s, the real key gets %d %s", what, got.status, got.raw)
		}
	}
	if _, err := b.byTicket(ticket, false); err != nil {
		t.Errorf("the real ticket: %v", err)
	}
}

// sealedTicket returns a ticket in the format of earlier versions.
func sealedTicket(t *testing.T, key string, p auth.Principal) string {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"Principal": p, "Expires": time.Now().Add(20 * time.Second).UnixMilli(), "Nonce": conversation.RandomText(16)})
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	seal, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(seal.Seal(nil, nil, payload, nil))
}
