package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/server"
	"parley/store"
	"parley/stream"
)

// TestAnalyticsAreWhatANaiveRecountSays does anything, over days, with the sessions of several accounts in both modes, and
// keeps a list of what happened beside it: each figure of both endpoints is what counting that list says.
func TestAnalyticsAreWhatANaiveRecountSays(t *testing.T) {
	for name, open := range map[string]func(*rapid.T, string) *store.Backend{ // a store whose clock is the bubble's
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
					r := newRecount(rt, open(rt, filepath.Join(directory, fmt.Sprint(runs, ".db"))))
					defer r.stop()
					for range rapid.IntRange(20, 80).Draw(rt, "steps") {
						r.step()
					}
					r.checkAll()
				})
			})
		})
	}
}

// inBubble runs a function in a bubble of time; a panic of it, which is how rapid ends a run, is one of its caller.
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

// recount is a server, and the list of what happened in it.
type recount struct {
	t       *rapid.T
	backend *store.Backend
	service *conversation.Service
	handler *server.Server
	keys    *auth.Keys
	owners  []*recountOwner

	mu     sync.Mutex
	events []happening
}

type recountOwner struct {
	name, secret string
	sessions     []*recountSession
}

type recountSession struct {
	id            string
	created, last time.Time
	deleted       bool
	reply         string // the newest
}

// happening is one thing that happened to an owner.
type happening struct {
	owner string
	at    time.Time
	kind  string // "request", a role, or a reply's ending
	// of an ending:
	prompt, completion int
	first              time.Duration // -1 if there was no text
}

// script says in a message's content how the model is to answer it.
type script struct {
	Owner              string
	First, Total       time.Duration
	Fails              bool
	Prompt, Completion int
}

func (r *recount) note(e happening) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.at = time.Now()
	r.events = append(r.events, e)
}

// Name implements stream.Model.
func (r *recount) Name() string { return "scripted" }

// Generate implements stream.Model: it does what the newest message says, and notes how that ended.
func (r *recount) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	var s script
	if err := json.Unmarshal([]byte(request.Messages[len(request.Messages)-1].Content), &s); err != nil {
		return stream.Result{}, err
	}
	e := happening{owner: s.Owner, kind: "completed", prompt: s.Prompt, completion: s.Completion, first: -1}
	err := pause(ctx, s.First)
	if err == nil {
		e.first = s.First
		write([]byte("text"))
		err = pause(ctx, s.Total-s.First)
	}
	if err == nil && s.Fails {
		err = &stream.ModelError{Code: stream.CodeProviderError, Message: "as it was told"}
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

func newRecount(t *rapid.T, backend *store.Backend) *recount {
	log := slog.New(slog.DiscardHandler)
	tiers, err := limit.ParseTiers(`{"pro":{"requestsPerMinute":1000000000,"tokensPerMinute":1000000000,"requestsPerMonth":700,"tokensPerMonth":9000,"activeSessions":7}}`)
	if err != nil {
		t.Fatal(err)
	}
	r := &recount{
		t: t, backend: backend, keys: auth.NewKeys(backend.Keys, auth.Options{}),
	}
	r.service = conversation.NewService(conversation.Options{
		Store: backend.Conversation, Model: r, Count: count, Log: log,
		Patience: stream.Patience{FirstByte: 1000 * time.Hour, Stall: 1000 * time.Hour},
	})
	if err := r.service.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.handler = server.New(server.Options{
		Conversation: r.service, Keys: r.keys, Tickets: auth.NewTickets(), Limits: auth.NewLimits(tiers), Ready: backend.Ping, Log: log,
	})
	for _, account := range []string{"acme", "bravo"} {
		for _, mode := range []string{auth.Live, auth.Test} {
			_, secret, err := r.keys.CreateFor(context.Background(), auth.Owner{Account: account, Mode: mode},
				auth.NewKey{Name: "a key", Scopes: []auth.Scope{auth.Admin}}, limit.Pro)
			if err != nil {
				t.Fatal(err)
			}
			r.owners = append(r.owners, &recountOwner{name: account + " " + mode, secret: secret})
		}
	}
	return r
}

func (r *recount) stop() {
	r.drain()
	if err := errors.Join(r.keys.Close(context.Background()), r.backend.Close()); err != nil {
		r.t.Error(err)
	}
}

// drain has what is live interrupted, once.
func (r *recount) drain() {
	select {
	case <-r.service.Draining():
	default:
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.service.Drain(now)
	}
}

// call makes a request, and notes it if no limit refused it.
func (r *recount) call(o *recountOwner, method, path string, body any) (status int, answer map[string]any) {
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
	recorder := httptest.NewRecorder()
	r.handler.ServeHTTP(recorder, request)
	if recorder.Code != 429 {
		r.note(happening{owner: o.name, kind: "request"})
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	synctest.Wait()
	return recorder.Code, answer
}

func moment(t *rapid.T, value any) time.Time {
	text, _ := value.(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// step does one thing.
func (r *recount) step() {
	t := r.t
	o := rapid.SampledFrom(r.owners).Draw(t, "owner")
	do := rapid.SampledFrom([]string{
		"create", "create", "send", "send", "send", "cancel", "delete", "clear", "read", "wait", "wait", "sleep", "check",
	}).Draw(t, "do")
	switch do {
	case "create":
		status, made := r.call(o, "POST", "/sessions", map[string]any{"userId": "user_0123456789abcdef"})
		if status == 200 {
			at := moment(t, made["createdAt"])
			o.sessions = append(o.sessions, &recountSession{id: made["sessionId"].(string), created: at, last: at})
		}
		return
	case "wait":
		time.Sleep(time.Duration(rapid.Int64Range(1, 5000).Draw(t, "milliseconds")) * time.Millisecond)
	case "sleep":
		time.Sleep(time.Duration(rapid.Int64Range(1, 20*3600).Draw(t, "seconds")) * time.Second)
	case "check":
		r.check(o)
	}
	synctest.Wait()
	if len(o.sessions) == 0 {
		return
	}
	s := rapid.SampledFrom(o.sessions).Draw(t, "session")
	path := "/sessions/" + s.id
	switch do {
	case "send":
		r.send(o, s)
	case "cancel":
		r.call(o, "POST", path+"/messages/"+s.reply+"/cancel", nil)
	case "delete":
		if status, _ := r.call(o, "DELETE", path, nil); status == 200 {
			s.deleted = true
		}
	case "clear":
		r.call(o, "DELETE", path+"/messages", nil)
	case "read":
		r.call(o, "GET", path, nil)
	}
}

func (r *recount) send(o *recountOwner, s *recountSession) {
	t := r.t
	script := script{
		Owner: o.name, First: time.Duration(rapid.Int64Range(0, 3000).Draw(t, "first")) * time.Millisecond,
		Fails: rapid.IntRange(0, 4).Draw(t, "fails") == 0, Prompt: rapid.IntRange(0, 300).Draw(t, "prompt"),
		Completion: rapid.IntRange(0, 300).Draw(t, "completion"),
	}
	longest := rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, 30 * time.Hour}).Draw(t, "longest")
	script.Total = script.First + time.Duration(rapid.Int64Range(0, longest.Milliseconds()).Draw(t, "more"))*time.Millisecond
	content, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	role := rapid.SampledFrom([]string{"user", "user", "system"}).Draw(t, "role")
	status, reply := r.call(o, "POST", "/sessions/"+s.id+"/messages", map[string]any{
		"content": string(content), "role": role, "streaming": true,
		"onBusy": rapid.SampledFrom([]string{"reject", "interrupt"}).Draw(t, "onBusy"),
	})
	if status == 200 {
		s.reply, s.last = reply["messageId"].(string), moment(t, reply["createdAt"])
		r.note(happening{owner: o.name, kind: role})
	}
}

// checkAll checks everybody at the end, on a day when test keys may ask again, once nothing is live.
func (r *recount) checkAll() {
	r.drain()
	time.Sleep(24 * time.Hour)
	for _, o := range r.owners {
		r.check(o)
		r.check(o)
	}
}

// check compares both endpoints with the recount.
func (r *recount) check(o *recountOwner) {
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	sum, active := r.count(o, month, month.AddDate(0, 1, 0)), 0
	for _, s := range o.sessions {
		if s.exists(now) {
			active++
		}
	}
	// The request that asks is counted too.
	requests, tokens := float64(sum.kinds["request"]+1), float64(sum.prompt+sum.completion)
	if status, got := r.call(o, "GET", "/analytics/usage", nil); status == 200 {
		r.same("usage", got, map[string]any{
			"billingPeriod.start": iso(month), "billingPeriod.end": iso(month.AddDate(0, 1, 0)), "tier": "pro",
			"requests.used": requests, "requests.limit": 700.0, "requests.percentage": 100 * requests / 700,
			"tokens.used": tokens, "tokens.limit": 9000.0, "tokens.percentage": 100 * tokens / 9000,
			"sessions.active": float64(active), "sessions.limit": 7.0, "sessions.percentage": 100 * float64(active) / 7,
		})
	}
	start := now.Add(-time.Duration(rapid.Int64Range(0, 40*24*3600_000).Draw(r.t, "start")) * time.Millisecond)
	end := start.Add(time.Duration(rapid.Int64Range(1, 60*24*3600_000).Draw(r.t, "length")) * time.Millisecond)
	unit := rapid.SampledFrom([]string{"hour", "day", "week", "month"}).Draw(r.t, "granularity")
	query := url.Values{"startDate": {start.Format(time.RFC3339Nano)}, "endDate": {end.Format(time.RFC3339Nano)}, "granularity": {unit}}
	status, got := r.call(o, "GET", "/analytics/metrics?"+query.Encode(), nil)
	if status == 429 {
		return
	}
	series, _ := got["series"].([]any)
	delete(got, "series")
	from, to := start.Truncate(time.Hour), end.Add(time.Hour-1).Truncate(time.Hour)
	want := r.figures(o, from, to)
	want["period.start"], want["period.end"], want["period.granularity"] = iso(start), iso(end), unit
	r.same("metrics", got, want)
	for from.Before(to) {
		until := from
		for until.Before(to) && sameUnit(unit, from, until) {
			until = until.Add(time.Hour)
		}
		if len(series) == 0 {
			r.t.Fatalf("the series ends before %v", from)
		}
		want := r.figures(o, from, until)
		want["start"], want["end"] = iso(from), iso(until)
		r.same("an entry of the series", series[0].(map[string]any), want)
		series, from = series[1:], until
	}
	if len(series) > 0 {
		r.t.Errorf("the series goes on with %v", series)
	}
}

func sameUnit(unit string, a, b time.Time) bool {
	year, week := a.ISOWeek()
	yearOfB, weekOfB := b.ISOWeek()
	return map[string]bool{
		"hour": a.Equal(b), "day": a.YearDay() == b.YearDay(), "month": a.Month() == b.Month(),
		"week": year == yearOfB && week == weekOfB,
	}[unit]
}

func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (s *recountSession) exists(now time.Time) bool {
	return !s.deleted && now.Before(s.created.Add(24*time.Hour))
}

// counted is what the events of a while amount to.
type counted struct {
	kinds              map[string]int
	prompt, completion int
	first              []int64 // milliseconds
}

func (r *recount) count(o *recountOwner, from, to time.Time) counted {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := counted{kinds: make(map[string]int)}
	for _, e := range r.events {
		if e.owner != o.name || e.at.Before(from) || !e.at.Before(to) {
			continue
		}
		c.kinds[e.kind]++
		c.prompt += e.prompt
		c.completion += e.completion
		if slices.Contains([]string{"completed", "cancelled", "failed", "interrupted"}, e.kind) && e.first >= 0 {
			c.first = append(c.first, max(1, e.first.Milliseconds()))
		}
	}
	slices.Sort(c.first)
	return c
}

// figures are the figures that metrics should have of a while.
func (r *recount) figures(o *recountOwner, from, to time.Time) map[string]any {
	sessions, active, lasted := 0.0, 0.0, time.Duration(0)
	for _, s := range o.sessions {
		if s.created.Before(from) || !s.created.Before(to) {
			continue
		}
		sessions++
		lasted += s.last.Sub(s.created)
		if s.exists(time.Now()) {
			active++
		}
	}
	over := func(sum, n float64) float64 {
		if n == 0 {
			return 0
		}
		return sum / n
	}
	c := r.count(o, from, to)
	of := func(kind string) float64 { return float64(c.kinds[kind]) }
	replies := of("user") + of("system")
	messages, tokens := of("user")+of("system")+replies, float64(c.prompt+c.completion)
	return map[string]any{
		"sessions.total": sessions, "sessions.active": active,
		"sessions.averageDuration": over(float64(lasted.Milliseconds()), 1000*sessions),
		"messages.total":           messages, "messages.averagePerSession": over(messages, sessions),
		"messages.userMessages": of("user"), "messages.assistantMessages": replies,
		"tokens.total": tokens, "tokens.prompt": float64(c.prompt), "tokens.completion": float64(c.completion),
		"tokens.averagePerMessage": over(tokens, messages),
		"replies.completed":        of("completed"), "replies.cancelled": of("cancelled"),
		"replies.failed": of("failed"), "replies.interrupted": of("interrupted"),
		"firstToken.p50": percentileOf(c.first, 50), "firstToken.p95": percentileOf(c.first, 95),
	}
}

// about is a figure that may be off by less than a sixteenth.
type about int64

func percentileOf(sorted []int64, p int) any {
	if len(sorted) == 0 {
		return nil
	}
	return about(sorted[max(1, (len(sorted)*p+99)/100)-1])
}

// same checks that an object has these figures, and no others.
func (r *recount) same(what string, got, want map[string]any) {
	r.t.Helper()
	flat := make(map[string]any)
	for name, value := range got {
		if object, ok := value.(map[string]any); ok {
			for inner, value := range object {
				flat[name+"."+inner] = value
			}
		} else {
			flat[name] = value
		}
	}
	if names, wanted := slices.Sorted(maps.Keys(flat)), slices.Sorted(maps.Keys(want)); !slices.Equal(names, wanted) {
		r.t.Fatalf("%s has %q, want %q", what, names, wanted)
	}
	for name, value := range want {
		have := flat[name]
		if near, ok := value.(about); ok {
			number, _ := have.(float64)
			if off := math.Abs(number - float64(near)); off > 0 && 16*off >= float64(near) {
				r.t.Errorf("%s: %s is %v, want about %v", what, name, have, near)
			}
		} else if have != value {
			r.t.Errorf("%s: %s is %v, want %v", what, name, have, value)
		}
	}
}
