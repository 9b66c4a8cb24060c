package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/service"
	"parley/server"
	"parley/store"
	"parley/stream"
	"parley/stream/models"
)

// TestRecount_RandomSteps_FiguresMatch takes random steps over several days, for two accounts in both modes, and records all
// events. Each figure of both analytics endpoints must equal the figure calculated from the recorded events.
func TestRecount_RandomSteps_FiguresMatch(t *testing.T) {
	t.Parallel()
	if os.Getenv(storeVariable) == "redis" {
		t.Skip("the store must use the bubble's clock; TestRecount_Redis_FiguresMatch is the same test on Redis")
	}
	for name, open := range map[string]func(*rapid.T, string) *store.Backend{ // stores that use the bubble's clock
		"embedded": func(t *rapid.T, path string) *store.Backend {
			b, err := store.Open(context.Background(), "file:"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			runs := 0
			rapid.Check(t, func(rt *rapid.T) {
				runs++
				inBubble(t, func() {
					path := filepath.Join(directory, fmt.Sprint(runs, ".db"))
					r := newRecount(rt, open(rt, path))
					r.now, r.rest, r.pass = time.Now, synctest.Wait, time.Sleep
					// The node is stopped during the day, because its timers would take nine tenths of the test's CPU time.
					r.passDay = func() {
						r.stop()
						r.nodes = nil
						time.Sleep(24 * time.Hour)
						r.addNode(open(rt, path))
					}
					defer r.stop()
					r.run(rt, 500)
				})
			})
		})
	}
}

// inBubble runs a function in a synctest bubble. If the function panics, inBubble panics with the same value outside the bubble:
// rapid ends a failed run by a panic.
func inBubble(t *testing.T, run func()) {
	var panicked any
	synctest.Test(t, func(*testing.T) {
		defer func() { panicked = recover() }()
		run()
	})
	if panicked != nil {
		panic(panicked)
	}
}

// recount holds one or more nodes, and records the events that analytics must count. It is also the model of the nodes.
type recount struct {
	// static
	t       rapid.TB
	nodes   []*recountNode
	owners  []*recountOwner
	now     func() time.Time    // the store's clock
	rest    func()              // waits until all replies have ended, except held ones
	pass    func(time.Duration) // lets a duration pass on the store's clock
	passDay func()              // ends all live replies and lets 24 hours pass on the store's clock
	held    bool                // set on Redis: a hold decides when a long reply ends, because the nodes do not use Redis' clock

	mu     sync.Mutex
	events []recordedEvent // guarded by mu
	holds  []*hold         // guarded by mu
}

// recountNode is a node.
type recountNode struct {
	backend *store.Backend
	service *service.Service
	handler *server.Server
	keys    *auth.Keys
}

type recountOwner struct {
	name, secret string
	sessions     []*recountSession
}

type recountSession struct {
	id            string
	created, last time.Time
	deleted       bool
	reply         string // id of the newest reply
	hold          *hold  // hold of the newest reply; nil if the test does not hold that reply
}

// hold keeps a reply live until the test releases the hold.
type hold struct {
	release chan struct{} // closed when the reply may end
	over    chan struct{} // closed when the model has ended the reply
	unused  bool          // guarded by recount.mu; the send was refused, so there is no reply
}

// recordedEvent is an event that analytics must count for an owner.
type recordedEvent struct {
	owner string
	at    time.Time
	kind  string // "request", the role of a message, the ending of a reply, or "timing" (see timed)
	// An ending has the three fields below. A timing has only the field first.
	prompt, completion int           // tokens
	first              time.Duration // time to the first token; 0 if the reply has no text
}

// script is the content of a message, as JSON. The script tells the model how to reply.
type script struct {
	Owner              string
	First, Total       time.Duration
	Silent, Fails      bool
	Hold               int // number of the hold, from 1; 0 for none
	Prompt, Completion int // tokens
}

func (r *recount) note(e recordedEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.at = r.now()
	r.events = append(r.events, e)
}

// Name implements stream.Model.
func (r *recount) Name() string { return "scripted" }

// Generate implements stream.Model. It follows the script in the newest message and records how the reply ended.
func (r *recount) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	var s script
	if err := json.Unmarshal([]byte(request.Messages[len(request.Messages)-1].Content), &s); err != nil {
		return stream.Result{}, err
	}
	e := recordedEvent{owner: s.Owner, kind: "completed", prompt: s.Prompt, completion: s.Completion}
	var h *hold
	if s.Hold > 0 {
		h = r.holdAt(s.Hold)
		defer close(h.over)
	}
	err := pause(ctx, s.First)
	if err == nil && !s.Silent {
		if !r.held { // on Redis, timed records the time to the first token
			e.first = max(1, s.First)
		}
		write([]byte("text"))
	}
	if err == nil {
		err = pause(ctx, s.Total-s.First)
	}
	if err == nil && h != nil {
		err = h.wait(ctx)
	}
	if err == nil && s.Silent { // a reply without text fails
		e.kind = "failed"
	}
	if err == nil && s.Fails {
		err = &stream.ModelError{Code: stream.CodeProviderError, Message: "the script asks for this error"}
		e.kind = "failed"
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		e.kind = "interrupted"
		if errors.Is(cause, stream.ErrCancelled) {
			e.kind = "cancelled"
		}
	}
	r.note(e)
	return stream.Result{Usage: &stream.Usage{Prompt: s.Prompt, Completion: s.Completion}}, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *recount) holdAt(i int) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[i-1]
}

func (h *hold) wait(ctx context.Context) error {
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newRecount starts a node for each backend. The backends must share one store. newRecount also creates two accounts, with an API
// key in each mode.
func newRecount(t rapid.TB, backends ...*store.Backend) *recount {
	r := &recount{t: t}
	for _, backend := range backends {
		r.addNode(backend)
	}
	for _, account := range []string{"acme", "bravo"} {
		for _, mode := range []string{auth.Live, auth.Test} {
			_, secret, err := r.nodes[0].keys.CreateFor(context.Background(), auth.Owner{Account: account, Mode: mode},
				auth.NewKey{Name: "a key", Scopes: []auth.Scope{auth.Admin}}, limit.Pro)
			if err != nil {
				t.Fatal(err)
			}
			r.owners = append(r.owners, &recountOwner{name: account + " " + mode, secret: secret})
		}
	}
	return r
}

func (r *recount) addNode(backend *store.Backend) {
	t, log := r.t, slog.New(slog.DiscardHandler)
	tiers, err := limit.ParseTiers(`{"pro":{"requestsPerMinute":1000000000,"tokensPerMinute":1000000000,
		"requestsPerMonth":700,"tokensPerMonth":9000,"activeSessions":7}}`)
	if err != nil {
		t.Fatal(err)
	}
	n := &recountNode{backend: backend, keys: auth.NewKeys(backend.Keys, auth.Options{})}
	n.service = service.New(service.Options{
		Store: timed{backend.Conversation, r}, Nodes: backend.Nodes, Models: models.Of(models.New(r.Name(), r, 0)), Count: count, Log: log,
		Timeouts: stream.Timeouts{FirstByte: 1000 * time.Hour, Stall: 1000 * time.Hour},
	})
	if err := n.service.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	n.handler = server.New(server.Options{
		Conversation: n.service, Keys: n.keys, Limits: auth.NewLimits(tiers), Ready: backend.Ping, Log: log,
		Models: models.Of(models.New("recount", r, 0)),
	})
	r.nodes = append(r.nodes, n)
}

// timed is a store. On Redis, it records each reply's time to the first token, because the test cannot calculate that time.
type timed struct {
	conversation.Store
	r *recount
}

// EndTurn implements conversation.Store.
func (s timed) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	m, err := s.Store.EndTurn(ctx, key, reply, timing)
	if s.r.held && (err == nil || errors.Is(err, conversation.ErrSessionNotFound)) {
		s.r.note(recordedEvent{owner: key.Owner.Account + " " + string(key.Owner.Mode), kind: "timing", first: timing.FirstToken})
	}
	return m, err
}

func (r *recount) stop() {
	r.drain()
	for _, n := range r.nodes {
		if err := errors.Join(n.keys.Close(context.Background()), n.backend.Close()); err != nil {
			r.t.Error(err)
		}
	}
}

// drain drains the nodes, which interrupts live replies. Later calls do nothing.
func (r *recount) drain() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range r.nodes {
		select {
		case <-n.service.Draining():
		default:
			n.service.Drain(now)
		}
	}
}

// call makes a request to a node for an owner. It records the request, unless the response is 429.
func (r *recount) call(n *recountNode, o *recountOwner, method, path string, body any, headers ...string) (status int, answer map[string]any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	request := httptest.NewRequest(method, "/v1"+path, strings.NewReader(string(encoded)))
	if body == nil {
		request = httptest.NewRequest(method, "/v1"+path, nil)
	}
	request.Header.Set("Authorization", "Bearer "+o.secret)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	n.handler.ServeHTTP(recorder, request)
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		r.t.Errorf("%s %s: %v", method, path, err)
	}
	if recorder.Code != 429 || code(answer) == "quota_exceeded" {
		r.note(recordedEvent{owner: o.name, kind: "request"})
	}
	if recorder.Header().Get("Idempotent-Replayed") != "" {
		answer["replayed"] = true
	}
	return recorder.Code, answer
}

func moment(t rapid.TB, value any) time.Time {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// run takes 20 to maxSteps random steps, and then checks the figures of all owners. Before the checks, it ends live replies and
// lets a day pass, because test keys may have used up their daily limit.
func (r *recount) run(t *rapid.T, maxSteps int) {
	for range rapid.IntRange(20, maxSteps).Draw(t, "steps") {
		r.step(t)
		r.rest()
	}
	r.passDay()
	for _, o := range r.owners {
		r.drawnCheck(t, o)
		r.drawnCheck(t, o)
	}
}

// drawnCheck checks the figures of an owner on a random node for a random period.
func (r *recount) drawnCheck(t *rapid.T, o *recountOwner) {
	n := rapid.SampledFrom(r.nodes).Draw(t, "node")
	start := r.now().UTC().Add(-time.Duration(rapid.Int64Range(0, 40*24*3600_000).Draw(t, "start")) * time.Millisecond)
	end := start.Add(time.Duration(rapid.Int64Range(1, 60*24*3600_000).Draw(t, "length")) * time.Millisecond)
	r.check(n, o, start, end, rapid.SampledFrom([]string{"hour", "day", "week", "month"}).Draw(t, "granularity"))
}

// step takes one random step.
func (r *recount) step(t *rapid.T) {
	n := rapid.SampledFrom(r.nodes).Draw(t, "node")
	o := rapid.SampledFrom(r.owners).Draw(t, "owner")
	do := rapid.SampledFrom([]string{
		"create", "create", "send", "send", "send", "cancel", "delete", "clear", "read", "release", "wait", "wait", "sleep", "check",
	}).Draw(t, "do")
	switch do {
	case "create":
		active := o.active(r.now())
		status, made := r.call(n, o, "POST", "/sessions", map[string]any{"userId": "user_0123456789abcdef"})
		if full := active == 7; status == 200 && full || code(made) == "quota_exceeded" && !full {
			r.t.Errorf("a create with %d of 7 sessions: %d %v", active, status, made)
		}
		if status == 200 {
			at := moment(t, made["createdAt"])
			o.sessions = append(o.sessions, &recountSession{id: made["sessionId"].(string), created: at, last: at})
		}
		return
	case "wait":
		r.pass(time.Duration(rapid.Int64Range(1, 5000).Draw(t, "milliseconds")) * time.Millisecond)
	case "sleep":
		r.pass(time.Duration(rapid.Int64Range(1, 5*3600).Draw(t, "seconds")) * time.Second)
	case "check":
		r.drawnCheck(t, o)
	}
	r.rest()
	if len(o.sessions) == 0 {
		return
	}
	s := rapid.SampledFrom(o.sessions).Draw(t, "session")
	path := "/sessions/" + s.id
	switch do {
	case "send":
		r.send(t, n, o, s)
	case "release":
		s.hold.end()
	case "cancel":
		r.call(n, o, "POST", path+"/messages/"+s.reply+"/cancel", nil)
	case "delete":
		if status, _ := r.call(n, o, "DELETE", path, nil); status == 200 {
			s.deleted = true
			s.hold.awaitEnd(t)
		}
	case "clear":
		r.call(n, o, "DELETE", path+"/messages", nil)
	case "read":
		r.call(n, o, "GET", path, nil)
	}
}

// end releases the held reply. h may be nil.
func (h *hold) end() {
	if h != nil && !h.isOver() {
		select {
		case <-h.release:
		default:
			close(h.release)
		}
	}
}

func (h *hold) isOver() bool {
	select {
	case <-h.over:
		return true
	default:
		return false
	}
}

// awaitEnd waits until the held reply has ended. h may be nil.
func (h *hold) awaitEnd(t rapid.TB) {
	if h == nil {
		return
	}
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	select {
	case <-h.over:
	case <-late.C:
		t.Fatal("the held reply is still live")
	}
}

func (r *recount) send(t *rapid.T, n *recountNode, o *recountOwner, s *recountSession) {
	script := script{
		Owner: o.name, First: time.Duration(rapid.Int64Range(0, 3000).Draw(t, "first")) * time.Millisecond,
		Fails: rapid.IntRange(0, 4).Draw(t, "fails") == 0, Prompt: rapid.IntRange(0, 300).Draw(t, "prompt"),
		Completion: rapid.IntRange(0, 300).Draw(t, "completion"),
	}
	longest := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 8 * time.Hour}).Draw(t, "longest")
	script.Total = script.First + time.Duration(rapid.Int64Range(0, longest.Milliseconds()).Draw(t, "more"))*time.Millisecond
	var h *hold
	if r.held {
		script.Silent = script.First > 2*time.Second
		script.First, script.Total = 0, 0
		if longest > time.Second {
			h = &hold{release: make(chan struct{}), over: make(chan struct{})}
			r.mu.Lock()
			r.holds = append(r.holds, h)
			script.Hold = len(r.holds)
			r.mu.Unlock()
		}
	}
	content, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	role := rapid.SampledFrom([]string{"user", "user", "system"}).Draw(t, "role")
	status, reply := r.call(n, o, "POST", "/sessions/"+s.id+"/messages", map[string]any{
		"content": string(content), "role": role, "streaming": true,
		"onBusy": rapid.SampledFrom([]string{"reject", "interrupt"}).Draw(t, "onBusy"),
	})
	if status == 200 {
		s.reply, s.last, s.hold = reply["messageId"].(string), moment(t, reply["createdAt"]), h
		r.note(recordedEvent{owner: o.name, kind: role})
	} else if h != nil {
		r.mu.Lock()
		h.unused = true
		r.mu.Unlock()
	}
}
