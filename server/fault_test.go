package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/store/redis/redistest"
)

// redisFault is a fault of Redis, or of the network between a node and Redis.
type redisFault struct {
	name         string
	inject, heal func(s *redistest.Server, p *redistest.Proxy)
	harmless     bool          // requests succeed during the fault
	refuses      bool          // with harmless: a request that is under way may still get 503
	lasts        time.Duration // minimum duration; if 0, the fault ends when all requests have their responses
}

var redisFaults = []redisFault{
	{name: "process killed", lasts: outage,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() }, heal: func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() }},
	{name: "process suspended", lasts: outage,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Stop() }, heal: func(s *redistest.Server, _ *redistest.Proxy) { s.Cont() }},
	{name: "replies 3 s late", lasts: outage,
		inject: func(_ *redistest.Server, p *redistest.Proxy) { p.Delay(3000) }, heal: healProxy},
	{name: "connections cut and refused", lasts: outage,
		inject: func(_ *redistest.Server, p *redistest.Proxy) { p.Cut() }, heal: func(_ *redistest.Server, p *redistest.Proxy) { p.Connect() }},
	{name: "replies lost", lasts: outage,
		inject: func(_ *redistest.Server, p *redistest.Proxy) { p.LoseReplies(0) }, heal: healProxy},
	{name: "replies and connections lost after 20 ms",
		inject: func(_ *redistest.Server, p *redistest.Proxy) { p.LoseReplies(20) }, heal: healProxy},
	{name: "read-only", lasts: outage,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("REPLICAOF", "127.0.0.1", "1") },
		heal:   func(s *redistest.Server, _ *redistest.Proxy) { s.Do("REPLICAOF", "NO", "ONE") }},
	{name: "out of memory",
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		heal:   func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
	{name: "unable to save",
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.BreakSaving() },
		heal:   func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "save", "") }},
	{name: "scripts evicted", harmless: true,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("SCRIPT", "FLUSH") }, heal: needsNoHeal},
	{name: "connections killed", harmless: true, refuses: true,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CLIENT", "KILL", "TYPE", "normal") }, heal: needsNoHeal},
	{name: "pub/sub connections killed", harmless: true,
		inject: func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CLIENT", "KILL", "TYPE", "pubsub") }, heal: needsNoHeal},
}

// outage is the duration of a fault during which each node takes the other for dead. A node is dead after 3 s without a
// heartbeat.
const outage = 3500 * time.Millisecond

func healProxy(_ *redistest.Server, p *redistest.Proxy) { p.Heal() }

func needsNoHeal(*redistest.Server, *redistest.Proxy) {}

// TestRedis_Fault_ReplyGoesOn runs a faultTest for each fault.
func TestRedis_Fault_ReplyGoesOn(t *testing.T) {
	t.Parallel()
	for _, fault := range redisFaults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			x := newFaultTest(t, fault)
			x.begin()
			began := time.Now()
			fault.inject(x.redis, x.proxy)
			x.checkDuringFault()
			if !fault.harmless {
				<-time.After(time.Until(began.Add(fault.lasts))) // the fault must last for its minimum duration
				x.speak("and still has a viewer. ")
			}
			fault.heal(x.redis, x.proxy)
			x.checkAfterFault()
		})
	}
}

// faultTest has two nodes on one Redis. The model on the first node generates a reply that sockets on both nodes view. A caller
// of the first node waits for another reply. During the fault, the first reply must go on.
type faultTest struct {
	t     *testing.T
	fault redisFault
	redis *redistest.Server
	proxy *redistest.Proxy
	model *directed
	a, b  *parley

	// Sessions: live has the live reply, and waited has the reply that the caller waits for. retry sends to third. A request
	// deletes doomed.
	live, waited, third, doomed string
	message                     string // id of the live reply
	call, quiet                 *call  // the model's calls for the live reply and for the reply that the caller waits for
	waiting                     <-chan answer
	here, there, idle           *socket // viewers on the two nodes, and a socket without subscriptions
	events                      <-chan string
	text                        string // text of the live reply so far
}

func newFaultTest(t *testing.T, fault redisFault) *faultTest {
	x := &faultTest{t: t, fault: fault, model: newDirected()}
	x.redis = redistest.Single(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction")
	x.proxy = redistest.NewProxy(t, x.redis.Addr)
	url := x.proxy.URL
	if fault.harmless { // no request may get 503, even on a busy machine
		url += redistest.Patient
	}
	x.a, x.b = startOn(t, url, x.model), startOn(t, url, x.model)
	return x
}

// begin starts both replies and the viewers.
func (x *faultTest) begin() {
	a := x.a
	x.live, x.waited, x.third, x.doomed = a.session(), a.session(), a.session(), a.session()
	x.here, x.there, x.idle = a.dial(), x.b.dial(), a.dial()
	x.here.mustSubscribe(x.live, "")
	x.there.mustSubscribe(x.live, "")
	x.message = a.begin(x.live, "hello")["messageId"].(string)
	x.call = x.model.next(x.t)
	x.waiting = a.later("POST", messages(x.waited), content("hello"))
	x.quiet = x.model.next(x.t)
	x.events = a.eventStream(x.t, messages(x.live)+"/"+x.message+"/stream")
	for _, s := range []*socket{x.here, x.there} {
		s.next("message.created")
		s.next("message.created")
	}
	x.speak("The model speaks, ")
	x.there.deltas(x.t, len(x.text))
}

// speak makes the model send text. The viewer on the model's node must get the text, even during a fault. If the viewer needed
// the store, the test would hang here.
func (x *faultTest) speak(text string) {
	x.t.Helper()
	x.call.say(text)
	x.text += text
	if seen := x.here.deltas(x.t, len(text)); seen != text {
		x.t.Errorf("the viewer on the model's node saw %q", seen)
	}
}

// checkDuringFault checks that the live reply goes on during the fault, and that each request gets a response. Without a deadline
// for the store, requests would hang here. The test does not measure the deadline (defaultTimeout in store/redis), which lets a
// request get its 503 within 2 s.
func (x *faultTest) checkDuringFault() {
	t := x.t
	spoken := len(x.text)
	x.quiet.say("whole")
	x.quiet.end()
	var requests sync.WaitGroup
	for _, r := range x.requests() {
		requests.Go(func() { x.request(r.method, r.path, r.body) })
	}
	for i := range 20 {
		x.speak(fmt.Sprintf("part %d, ", i))
	}
	got := within(t, "the waiting caller's response", x.waiting)
	switch {
	case x.fault.harmless && got.status == http.StatusOK:
	case got.status != http.StatusServiceUnavailable || code(got.body) != "service_unavailable" || got.header.Get("Retry-After") == "":
		t.Errorf("the waiting caller got %d %s", got.status, got.raw)
	}
	requests.Wait()
	if x.fault.harmless {
		x.there.deltas(t, len(x.text)-spoken)
		return
	}
	if ready := x.a.call("GET", "/readyz", nil); ready.status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d %s", ready.status, ready.raw)
	}
	s, err := x.a.tryDial(x.a.url, websocket.DialOptions{})
	if refused, ok := err.(*refusal); !ok || refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a handshake got %v, %v, want 503", s, err)
	}
}

// requests returns a request for each endpoint that uses the store, an invalid request, and GET /healthz.
func (x *faultTest) requests() []struct {
	method, path string
	body         any
} {
	live, doomed, reply := messages(x.live), messages(x.doomed), messages(x.live)+"/"+x.message
	return []struct {
		method, path string
		body         any
	}{
		{"POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"}},
		{"GET", "/v1/sessions", nil},
		{"GET", "/v1/sessions/" + x.live, nil},
		{"DELETE", "/v1/sessions/" + x.doomed, nil},
		{"POST", messages(x.third), map[string]any{"content": "with a key", "streaming": true}},
		{"GET", live, nil},
		{"DELETE", doomed, nil},
		{"GET", reply, nil},
		{"POST", doomed + "/msg_0000000000000000/cancel", nil},
		{"GET", doomed + "/msg_0000000000000000/stream", nil},
		{"POST", live[:len(live)-len("/messages")] + "/context", content("what if")},
		{"POST", "/v1/stream/tickets", map[string]any{"sessionId": x.live}},
		{"GET", "/v1/analytics/metrics?startDate=2026-01-01T00:00:00Z&endDate=2026-01-02T00:00:00Z", nil},
		{"GET", "/v1/analytics/usage", nil},
		{"POST", "/v1/keys", map[string]any{"name": "n", "scopes": []string{"admin"}}},
		{"GET", "/v1/keys", nil},
		{"DELETE", "/v1/keys/key_0000000000000000", nil},
		{"POST", "/v1/keys/key_0000000000000000/rotate", nil},
		{"GET", "/v1/sessions?limit=none", nil}, // invalid: uses the store only for the rate limit
		{"GET", "/healthz", nil},
	}
}

// request makes a request during the fault and checks the status: 200 for /healthz, below 500 if the fault is harmless, otherwise
// 503. During a harmless fault with the flag refuses, 503 is right too.
func (x *faultTest) request(method, path string, body any) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	got, err := x.a.do(ctx, method, path, body, "Idempotency-Key", method+path)
	switch {
	case err != nil:
		x.t.Errorf("%s %s: %v", method, path, err)
	case path == "/healthz" && got.status == http.StatusOK:
	case x.fault.harmless && got.status != 0 && got.status < 500:
	case (!x.fault.harmless || x.fault.refuses) && path != "/healthz" && got.status == http.StatusServiceUnavailable &&
		code(got.body) == "service_unavailable" && got.header.Get("Retry-After") != "":
	default:
		x.t.Errorf("%s %s: %d %s", method, path, got.status, got.raw)
	}
}

// checkAfterFault checks that both nodes work after the fault without a restart, and that viewers and history have the whole
// text.
func (x *faultTest) checkAfterFault() {
	t := x.t
	for _, p := range []*parley{x.a, x.b} {
		p.awaitReady()
	}
	x.speak("and ends.")
	if !x.fault.harmless {
		x.there.deltas(t, len(x.text)-len("The model speaks, ")) // deltas fails if text is missing between two deltas
	} else {
		x.there.deltas(t, len("and ends."))
	}
	x.call.end()
	for name, s := range map[string]*socket{"a": x.here, "b": x.there} {
		if f := s.next("message.completed"); f.Message.Content != x.text {
			t.Errorf("the viewer on node %s got the terminal frame %+v", name, f)
		}
	}
	if got := within(t, "the end of the event stream", x.events); got != x.text {
		t.Errorf("the event stream showed %q", got)
	}
	for _, p := range []*parley{x.a, x.b} {
		p.awaitHistory(x.live, "hello", x.text)
		p.awaitHistory(x.waited, "hello", "whole")
	}
	x.idle.must(map[string]any{"type": "ping", "id": "1"})
	x.idle.next("pong")
	x.retry()
}

// retry repeats a send that checkDuringFault made, with the same idempotency key. The session must then have one message and one
// reply.
func (x *faultTest) retry() {
	t := x.t
	var begun answer
	x.a.poll("the send to be accepted", func() bool {
		begun = x.b.call("POST", messages(x.third), map[string]any{"content": "with a key", "streaming": true}, "Idempotency-Key", "POST"+messages(x.third))
		return begun.status == http.StatusOK
	})
	c := x.model.next(t)
	c.say("once")
	c.end()
	x.a.awaitHistory(x.third, "with a key", "once")
	if s := x.b.must("GET", "/v1/sessions/"+x.third, nil); s["messageCount"] != 2.0 {
		t.Errorf("the session is %v", s)
	}
	if n := x.model.asked.Load(); n != 3 {
		t.Errorf("the model was called %d times", n)
	}
}

// poll calls ready until ready returns true, at most for testTimeout. The parameter what names the awaited event in the failure
// message.
func (p *parley) poll(what string, ready func() bool) {
	p.t.Helper()
	late := time.Now().Add(testTimeout)
	for !ready() {
		if time.Now().After(late) {
			p.t.Fatalf("timed out waiting for %s", what)
		}
		<-time.After(20 * time.Millisecond) // a client's delay before a retry
	}
}

func (p *parley) awaitReady() {
	p.t.Helper()
	p.poll("/readyz", func() bool { return p.call("GET", "/readyz", nil).status == http.StatusOK })
}

// awaitHistory waits until the session's newest reply has ended. The history must then be a message with the text asked, and a
// completed reply with the text answered.
func (p *parley) awaitHistory(session, asked, answered string) {
	p.t.Helper()
	var all []message
	p.poll("the end of the reply", func() bool {
		all = p.history(session)
		return len(all) == 0 || all[len(all)-1].Status != "streaming"
	})
	if len(all) != 2 || all[0].Content != asked || all[1].Content != answered || all[1].Status != "completed" {
		p.t.Errorf("the history is %+v", all)
	}
}

// eventStream reads an event stream of a reply in the background. At the end of the stream, it sends the text of all deltas to
// the channel. Text that is missing between two deltas fails the test.
func (p *parley) eventStream(t *testing.T, path string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), "GET", p.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	response, err := p.client.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	all := make(chan string, 1)
	go func() {
		defer response.Body.Close()
		var text strings.Builder
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var f frame
				err := json.Unmarshal([]byte(data), &f)
				if err != nil || f.Type == "message.delta" && f.Offset != text.Len() {
					t.Errorf("after %d bytes: %v, %+v", text.Len(), err, f)
				}
				text.WriteString(f.Delta)
			}
		}
		all <- text.String()
	}()
	return all
}
