package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"parley/cmd/chaos/history"
	wsclient "parley/stream/client"
)

// world is one try of a row: real processes, a model, clients, and the record of what they saw.
type world struct {
	*scene
	conditions
	row    *row
	random *rand.Rand // decides the schedule of the faults; only the goroutine of the row uses it
	say    func(format string, about ...any)

	record   *record
	model    *model
	gate     *gate
	api      *api // through the gate
	nodes    []*node
	worst    worst // owned by the goroutine of the row
	patience context.Context
	giveUp   context.CancelFunc // ends patience, so that the clients stop waiting for replies: the server may refuse all reads

	ended    chan struct{} // closed when the clients must stop
	clients  sync.WaitGroup
	watchers sync.WaitGroup
	unwatch  context.CancelFunc
	watching context.Context

	mu   sync.Mutex
	live map[string]int       // guarded by mu; by session: the number of replies that have not ended for its watcher
	told map[string]time.Time // guarded by mu; by session: the time at which its watcher was told of the expiry; zero if it was not
}

// worst has the worst figures of a try.
type worst struct {
	outage, ending time.Duration
	memory         int64 // bytes
}

// newWorld starts the model and the gate. The row starts the rest.
func newWorld(s *scene, r *row, c conditions, seed uint64, say func(format string, about ...any)) *world {
	w := &world{
		scene: s, conditions: c, row: r, say: say, random: random(seed), record: newRecord(), ended: make(chan struct{}),
		live: map[string]int{}, told: map[string]time.Time{},
	}
	w.model = newModel(s, 60*time.Millisecond)
	w.gate = newGate(s)
	w.api = newAPI(s, "http://"+w.gate.addr, w.record)
	w.watching, w.unwatch = context.WithCancel(context.Background())
	s.Cleanup(w.unwatch)
	w.patience, w.giveUp = context.WithCancel(context.Background())
	s.Cleanup(w.giveUp)
	return w
}

// random returns the random source that decides the schedule of a seed.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 14)) }

// scaled returns n at the scale of the try, but at least least.
func (w *world) scaled(n, least int) int { return max(least, n*w.scale/100) }

// user is the user of all sessions.
const user = "user_0123456789abcdef"

// tiers sets limits that no load of the harness reaches.
const tiers = `{"pro":{"requestsPerMinute":1000000,"framesPerMinute":1000000,"tokensPerMinute":1000000000,` +
	`"activeSessions":1000000}}`

// serve starts a node behind the gate. env is added to its environment.
func (w *world) serve(dir, store string, env ...string) *node {
	n := newNode(w, dir, w.environment(store, env...)...)
	w.Cleanup(n.kill)
	n.start()
	w.nodes = append(w.nodes, n)
	w.gate.add(n, !w.row.unchecked)
	return n
}

func (w *world) environment(store string, env ...string) []string {
	return append([]string{
		"PARLEY_STORE=" + store, "PARLEY_ADMIN_KEY=" + adminKey, "PARLEY_TIERS=" + tiers,
		"OPENAI_BASE_URL=" + w.model.url, "PARLEY_MODEL=chaos",
	}, env...)
}

// over reports whether the load has ended.
func (w *world) over() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// pause waits, at most until the load ends.
func (w *world) pause(d time.Duration) {
	select {
	case <-w.ended:
	case <-time.After(d):
	}
}

// broken reports that a promise of the row itself is broken.
func (w *world) broken(promise history.Promise, format string, about ...any) {
	w.Errorf("%s: %s", promise, fmt.Sprintf(format, about...))
}

// createSession creates a session, and repeats the request until it succeeds. It returns "" after the end of the load.
func (w *world) createSession() string {
	key := fmt.Sprintf("session-%d", rand.Uint64())
	window := map[string]any{"maxTokens": 1_000_000, "compressionEnabled": false}
	body := map[string]any{"userId": user, "contextConfig": window}
	for {
		if a := w.api.call("POST", "/v1/sessions", body, key, soon); a.status == 200 {
			w.record.session(a.SessionID)
			return a.SessionID
		}
		if w.over() {
			return ""
		}
		w.pause(200 * time.Millisecond)
	}
}

// pages reads the history of a session, oldest message first, and records each page. gone means that the session must not exist.
func (w *world) pages(session string, limit int, gone bool) {
	path := fmt.Sprintf("/v1/sessions/%s/messages?order=asc&limit=%d", session, limit)
	var expected []int
	if gone {
		expected = []int{404}
	}
	for cursor := ""; !w.over(); {
		begun := time.Now()
		a := w.api.call("GET", path+cursor, nil, "", soon, expected...)
		if a.status != 200 {
			return
		}
		r := history.Read{Session: session, Begun: begun}
		for _, m := range a.Data {
			r.Messages = append(r.Messages, m.message())
		}
		w.record.read(r)
		if !a.Pagination.HasMore {
			return
		}
		cursor = "&cursor=" + a.Pagination.NextCursor
	}
}

// watch follows a session over a WebSocket until the end of the try. It records what it gets of each reply.
func (w *world) watch(session string) {
	c := w.socketClient()
	w.tell(session, time.Time{})
	w.watchers.Go(func() {
		views := map[string]*history.View{}
		for e, err := range c.Watch(w.watching, session, "") {
			if e.Type == wsclient.Expired {
				w.tell(session, time.Now())
			}
			if err != nil || e.Type == wsclient.Deleted || e.Type == wsclient.Expired {
				break
			}
			if e.Type == wsclient.Cleared { // the store has lost writes, so later pieces may begin at any offset
				for id := range views {
					w.record.view(*views[id])
				}
				clear(views)
				w.setLive(session, 0)
				continue
			}
			if e.MessageID == "" || e.Type == wsclient.Created && e.Message.Role != "assistant" {
				continue
			}
			v := views[e.MessageID]
			if v == nil {
				v = &history.View{Viewer: "watcher", Session: session, Reply: e.MessageID, Late: e.Type != wsclient.Created}
				views[e.MessageID] = v
			}
			collect(v, e)
			w.setLive(session, unended(views))
		}
		for _, v := range views {
			w.record.view(*v)
		}
		w.setLive(session, 0)
	})
}

func unended(views map[string]*history.View) (n int) {
	for _, v := range views {
		if len(v.Ends) == 0 {
			n++
		}
	}
	return n
}

func (w *world) setLive(session string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[session] = n
}

// tell records the time at which the watcher of a session was told of the expiry; zero means not yet.
func (w *world) tell(session string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[session] = at
}

// waiting returns the number of replies that have not ended for their watchers.
func (w *world) waiting() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, live := range w.live {
		n += live
	}
	return n
}

// socketClient returns a client of the Go package through the gate. The client is closed when the scene ends.
func (w *world) socketClient() *wsclient.Client {
	c := wsclient.New(wsclient.Options{BaseURL: "http://" + w.gate.addr + "/v1", Key: adminKey})
	w.Cleanup(c.Close)
	return c
}

// lie returns the rest of a message that makes the model lie, or "".
func (w *world) lie(random *rand.Rand) string {
	if len(w.row.lies) == 0 || random.IntN(3) > 0 {
		return ""
	}
	return " then " + w.row.lies[random.IntN(len(w.row.lies))]
}

// eventually waits until condition returns true. took is the time that it has waited. ok is false after the timeout.
func eventually(timeout time.Duration, condition func() bool) (took time.Duration, ok bool) {
	begun := time.Now()
	for !condition() {
		if time.Since(begun) > timeout {
			return time.Since(begun), false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begun), true
}

// files returns the names of the files and folders of the embedded store in dir.
func files(dir string) (all []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if len(e.Name()) >= len(storeFile) && e.Name()[:len(storeFile)] == storeFile {
			all = append(all, e.Name())
		}
	}
	slices.Sort(all)
	return all
}

// storeFile is the file of the embedded store. The names of the store's other files begin with this name.
const storeFile = "parley.db"
