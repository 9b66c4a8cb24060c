package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"parley/store/redis/redistest"
)

// pair is two server processes that share one Redis.
type pair struct {
	t     *testing.T
	dir   string
	env   []string
	nodes [2]atomic.Pointer[process]
}

func newPair(t *testing.T, url string, model *wordsModel) *pair {
	p := &pair{t: t, dir: t.TempDir(), env: append(model.env(), "PARLEY_STORE="+url, "PARLEY_TIERS="+manyRequests)}
	for i := range p.nodes {
		p.start(i)
	}
	return p
}

const manyRequests = `{"pro":{"requestsPerMinute":1000000,"framesPerMinute":1000000,"tokensPerMinute":100000000}}`

// start starts node i, or restarts it after its process has ended.
func (p *pair) start(i int) { p.nodes[i].Store(serveIn(p.t, p.dir, p.env...)) }

// node returns the current process of node i modulo 2.
func (p *pair) node(i int) *process { return p.nodes[i%2].Load() }

// event is a server-sent event of a reply.
type event struct {
	id, kind string
	Offset   int
	Delta    string
	Message  struct {
		MessageID, Status, Content string
	}
}

// events reads the SSE stream of the reply at path and calls show for each event, until the stream ends. The stream begins after
// the cursor after. If after is "", the stream begins at the start of the reply.
func (p *process) events(ctx context.Context, path, after string, show func(event)) error {
	request, err := http.NewRequestWithContext(ctx, "GET", p.url+path+"/stream", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.key)
	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}
	response, err := streamClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return errUnavailable
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the stream returned %d", response.StatusCode)
	}
	var e event
	var data string // the scanner also yields a line that was cut, but an event counts only after the empty line
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			data = value
		case "":
			if e.kind != "" {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					p.t.Errorf("%v in %s", err, data)
				}
				show(e)
			}
			e, data = event{}, ""
		}
	}
	return lines.Err()
}

// errUnavailable means that a stream was refused with 503.
var errUnavailable = errors.New("the stream returned 503")

// streamClient has no timeout, because a stream lasts as long as its reply.
var streamClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// follow reads the SSE stream of a reply to its end. It repeats the request after a 503. The deltas must follow each other
// without a gap. It returns the text of the deltas, the terminal event, and the time at which the terminal event arrived.
func (p *process) follow(path string) (text string, end event, at time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	show := func(e event) {
		switch {
		case e.kind == "message.delta" && e.Offset == len(text):
			text += e.Delta
		case e.kind == "message.delta":
			p.t.Errorf("a delta has the offset %d, want %d", e.Offset, len(text))
		case e.kind != "message.created" && strings.HasPrefix(e.kind, "message."):
			end, at = e, time.Now()
		}
	}
	err := p.events(ctx, path, "", show)
	for errors.Is(err, errUnavailable) {
		<-time.After(100 * time.Millisecond)
		err = p.events(ctx, path, "", show)
	}
	if err != nil {
		p.t.Error(err)
	}
	return text, end, at
}

// In each round, a node is killed in the middle of a reply. The other node must end the reply for the viewer.
func TestNodes_OneKilled_OtherEndsItsReply(t *testing.T) {
	t.Parallel()
	const groups, rounds = 4, 2
	server := redistest.Single(t)
	var late, lost atomic.Int64 // milliseconds
	var work sync.WaitGroup
	for g := range groups {
		model := newWordsModel(t, 10*time.Millisecond)
		p := newPair(t, fmt.Sprintf("%s/%d%s", server.URL, g, redistest.Patient), model)
		work.Go(func() { // in parallel, because most of the time each group waits for a heartbeat to expire
			random := rand.New(rand.NewPCG(7, uint64(g)))
			for round := range rounds {
				killNode(t, p, model, round, 30+random.IntN(270), &late, &lost)
			}
		})
	}
	work.Wait()
	t.Logf("%d kills: the viewer on the other node got the terminal event after at most %d ms; lost words were at most %d ms old", groups*rounds, late.Load(), lost.Load())
}

// killNode begins a reply on one node and follows it on the other. It kills the first node when the model has written killAt
// words. It raises late to the delay of the terminal event, and lost to the greatest age of a lost word. late and lost are in
// milliseconds.
func killNode(t *testing.T, p *pair, model *wordsModel, round, killAt int, late, lost *atomic.Int64) {
	writer, other := p.node(round), p.node(round+1)
	session := writer.session()
	asked := fmt.Sprintf("say 5000 words in %s", session)
	begun := writer.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": asked, "streaming": true})
	path := "/v1/sessions/" + session + "/messages/" + begun["messageId"].(string)
	type outcome struct {
		text string
		end  event
		at   time.Time
	}
	followed := make(chan outcome, 1)
	go func() {
		text, end, at := other.follow(path)
		followed <- outcome{text, end, at}
	}()
	model.awaitWritten(t, asked, killAt)
	killed := time.Now()
	writer.kill()
	w := <-followed
	raise(late, w.at.Sub(killed))
	if w.end.kind != "message.interrupted" {
		t.Errorf("the viewer got %q after %v, want message.interrupted", w.end.kind, w.at.Sub(killed))
	}
	content := w.end.Message.Content
	if !strings.HasPrefix(words(5000), content) || !strings.HasPrefix(content, w.text) {
		t.Errorf("the deltas have %d bytes and the terminal event has %d: they are no prefixes of the model's text", len(w.text), len(content))
	}
	missing := time.Duration(0)
	for had := strings.Count(content, " "); model.writtenBefore(asked, killed.Add(-missing)) > had; missing += 5 * time.Millisecond {
	}
	raise(lost, missing)
	if m := other.must("GET", path, nil); m["status"] != "interrupted" || m["content"] != content {
		t.Errorf("history has %v", m)
	}
	next := other.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "say 2"})
	if next["content"] != words(2) {
		t.Errorf("the next send returned %v", next)
	}
	s := other.must("GET", "/v1/sessions/"+session, nil)
	if s["messageCount"] != 4.0 || s["tokenUsage"].(map[string]any)["total"].(float64) <= 12 {
		t.Errorf("the session is %v", s)
	}
	p.start(round % 2)
}

// raise sets most to d in milliseconds, if d is greater.
func raise(most *atomic.Int64, d time.Duration) {
	for n := d.Milliseconds(); ; {
		if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
			return
		}
	}
}

// The test suspends a node with SIGSTOP until the heartbeat of the node has expired. The other node ends the reply. The fencing
// token must then reject the writes of the first node.
func TestNodes_NodeSuspendedDuringReply_ItsWritesFenced(t *testing.T) {
	t.Parallel()
	model := newWordsModel(t, 10*time.Millisecond)
	p := newPair(t, redistest.Single(t).URL+redistest.Patient, model)
	suspended, other := p.node(0), p.node(1)
	session := suspended.session()
	asked := "say 50000 words" // more than network buffers hold, so the model cannot finish while the node is suspended
	begun := suspended.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": asked, "streaming": true})
	path := "/v1/sessions/" + session + "/messages/" + begun["messageId"].(string)
	here := subscribe(t, suspended, session)
	here.until("message.delta")
	ended := make(chan event, 1)
	go func() {
		_, end, _ := other.follow(path)
		ended <- end
	}()
	model.awaitWritten(t, asked, 100)
	suspended.signal(syscall.SIGSTOP)
	end := <-ended
	if end.kind != "message.interrupted" {
		t.Fatalf("the viewer on the other node got %+v, want message.interrupted", end)
	}
	next := other.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "say 2"})
	suspended.signal(syscall.SIGCONT)
	last := here.until("message.interrupted")["message"].(map[string]any)
	if last["content"] != end.Message.Content {
		t.Errorf("the terminal event has %d bytes on the suspended node and %d on the other", len(last["content"].(string)), len(end.Message.Content))
	}
	if answered := here.until("message.completed")["message"].(map[string]any); answered["messageId"] != next["messageId"] {
		t.Errorf("the next completed reply is %v", answered)
	}
	for _, node := range []*process{suspended, other} {
		if m := node.must("GET", path, nil); m["status"] != "interrupted" || m["content"] != end.Message.Content {
			t.Errorf("history has %v", m)
		}
	}
	model.awaitClosed(t, asked)
}

// sender sends messages in its own session, each to a random node. It follows each reply over connections that it cuts.
type sender struct {
	p                *pair
	random           *rand.Rand
	session          string
	replies, retries int
}

// send sends message n until a node accepts it, then follows the reply to its end. It chooses a random node for each connection.
func (k *sender) send(n int) {
	key := fmt.Sprintf("%s-%d", k.session, n)
	want := words(20 + k.random.IntN(150))
	asked := fmt.Sprintf("say %d words, message %d", strings.Count(want, " "), n)
	path, deadline := "", time.Now().Add(timeout)
	for path == "" {
		if time.Now().After(deadline) {
			k.p.t.Errorf("a send got no response within %v", timeout)
			return
		}
		status, _, answer, err := k.p.node(k.random.IntN(2)).request("POST", "/v1/sessions/"+k.session+"/messages",
			map[string]any{"content": asked, "streaming": true}, "Idempotency-Key", key)
		switch {
		case err == nil && status == http.StatusOK:
			path = "/v1/sessions/" + k.session + "/messages/" + answer["messageId"].(string)
		case err == nil && status != http.StatusServiceUnavailable:
			k.p.t.Errorf("a send returned %d %v", status, answer)
			return
		default:
			k.retries++
			<-time.After(50 * time.Millisecond) // a client waits before it retries
		}
	}
	text, cursor, end := "", "", event{}
	for end.kind == "" && time.Now().Before(deadline) {
		ctx, cut := context.WithTimeout(context.Background(), time.Duration(50+k.random.IntN(400))*time.Millisecond)
		_ = k.p.node(k.random.IntN(2)).events(ctx, path, cursor, func(e event) {
			cursor = e.id
			switch {
			case e.kind == "message.delta" && e.Offset != len(text):
				k.p.t.Errorf("a delta has the offset %d, want %d", e.Offset, len(text))
			case e.kind == "message.delta":
				text += e.Delta
			case e.kind != "message.created" && strings.HasPrefix(e.kind, "message."):
				end = e
			}
		})
		cut()
	}
	if end.kind != "message.completed" || text != want || end.Message.Content != want {
		k.p.t.Errorf("a reply of %d bytes ended as %q with %d bytes, after deltas of %d bytes", len(want), end.kind, len(end.Message.Content), len(text))
	}
	k.replies++
}

// Nodes are drained and restarted one after the other under load. Every reply must be complete.
func TestNodes_RollingRestart_EveryReplyCompletes(t *testing.T) {
	t.Parallel()
	const senders, restarts = 8, 4
	model := newWordsModel(t, 10*time.Millisecond)
	p := newPair(t, redistest.Single(t).URL+redistest.Patient, model)
	stop := make(chan struct{})
	var crowd [senders]*sender
	var sending sync.WaitGroup
	for i := range crowd {
		crowd[i] = &sender{p: p, random: rand.New(rand.NewPCG(8, uint64(i))), session: p.node(i).session()}
		sending.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					crowd[i].send(n)
				}
			}
		})
	}
	for i := range restarts {
		model.awaitMore(t, 1000) // some load between restarts
		leaving := p.node(i)
		leaving.signal(syscall.SIGTERM)
		if state := leaving.wait(); !state.Success() {
			t.Errorf("a node ended with %v:\n%s", state, leaving.errs)
		}
		p.start(i % 2)
	}
	close(stop)
	sending.Wait()
	replies, retries := 0, 0
	for _, k := range crowd {
		replies, retries = replies+k.replies, retries+k.retries
		s := p.node(0).must("GET", "/v1/sessions/"+k.session, nil)
		if s["messageCount"].(float64) != float64(2*k.replies) {
			t.Errorf("messageCount is %v after %d replies", s["messageCount"], k.replies)
		}
	}
	t.Logf("%d restarts: %d replies complete on viewers that changed nodes; %d sends repeated", restarts, replies, retries)
	if replies < 2*senders || retries == 0 {
		t.Error("too little load for this test to prove anything")
	}
}
