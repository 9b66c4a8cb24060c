package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"parley/store/redis/redistest"
	"parley/stream"
)

// load runs clients that send messages to two nodes on one Redis, each client in its own session. The clients use idempotency
// keys and retry after a 503.
type load struct {
	t        *testing.T
	nodes    [2]*parley
	sessions []string
	stopping context.Context
	stop     context.CancelFunc
	work     sync.WaitGroup

	sent, retries, answered atomic.Int64

	mu      sync.Mutex
	replies map[string][]message // guarded by mu; the replies that clients got, by session
}

// failoverTimeout is the longest time that a test waits for a failover. It is long because a failover takes Sentinels many steps.
const failoverTimeout = 3 * testTimeout

// words is a model. It sends each reply in five parts, 4 ms apart.
var words = modelFunc(func(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	asked := request.Messages[len(request.Messages)-1].Content
	for i := range 5 {
		select {
		case <-time.After(4 * time.Millisecond): // the pace of a model
		case <-ctx.Done():
			return stream.Result{}, ctx.Err()
		}
		write(fmt.Appendf(nil, "%d of 5 to %s. ", i, asked))
	}
	return stream.Result{FinishReason: "stop"}, nil
})

// wholeWords returns the complete reply that the model words gives to a message.
func wholeWords(asked string) (text string) {
	for i := range 5 {
		text += fmt.Sprintf("%d of 5 to %s. ", i, asked)
	}
	return text
}

func newLoad(t *testing.T, url string, clients int) *load {
	l := &load{t: t, replies: make(map[string][]message)}
	l.stopping, l.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { l.stop(); l.work.Wait() })
	for i := range l.nodes {
		l.nodes[i] = startOn(t, url, words)
	}
	for i := range clients {
		l.sessions = append(l.sessions, l.nodes[i%2].session())
	}
	return l
}

// start starts the clients. They send messages until end stops them.
func (l *load) start() {
	for i, session := range l.sessions {
		l.work.Go(func() {
			for n := 0; l.stopping.Err() == nil; n++ {
				l.send(i+n, session, fmt.Sprintf("send %d", n))
			}
		})
	}
}

// send sends a message until it gets a reply, at most for failoverTimeout. After a 503, it tries the other node.
func (l *load) send(first int, session, text string) {
	l.sent.Add(1)
	late := time.Now().Add(failoverTimeout)
	for try := first; ; try++ {
		got := <-l.nodes[try%2].later("POST", messages(session), content(text), "Idempotency-Key", session+"-"+strings.ReplaceAll(text, " ", "-"))
		switch {
		case got.status == http.StatusOK:
			m := decodeInto[message](l.t, got)
			if m.Content != wholeWords(text) && m.Status != "interrupted" {
				l.t.Errorf("%s got %s", text, got.raw)
			}
			l.mu.Lock()
			l.replies[session] = append(l.replies[session], m)
			l.mu.Unlock()
			l.answered.Add(1)
			return
		case got.status != http.StatusServiceUnavailable:
			l.t.Errorf("%s in %s got %d %s", text, session, got.status, got.raw)
			return
		case time.Now().After(late):
			l.t.Errorf("%s in %s never got a reply", text, session)
			return
		}
		l.retries.Add(1)
		<-time.After(50 * time.Millisecond) // a client's delay before a retry
	}
}

// awaitReplies waits until the clients have got this number of further replies.
func (l *load) awaitReplies(more int64) {
	l.t.Helper()
	from, late := l.answered.Load(), time.Now().Add(failoverTimeout)
	for l.answered.Load() < from+more {
		if time.Now().After(late) {
			l.t.Fatalf("the clients got %d further replies, want %d", l.answered.Load()-from, more)
		}
		<-time.After(20 * time.Millisecond) // until the next check
	}
}

// end stops the clients. It returns the number of lost replies: a client got the reply, but the history lacks it or has another
// text or status.
func (l *load) end() (lost int) {
	l.t.Helper()
	l.stop()
	l.work.Wait()
	for i, session := range l.sessions {
		l.send(i, session, "send 1000000") // fails if the session is stuck
		there := make(map[string]message)
		for _, m := range l.wholeHistory(session) {
			there[m.MessageID] = m
			if m.Status == "streaming" {
				l.t.Errorf("%+v is still live", m)
			}
		}
		for _, m := range l.replies[session] {
			if kept := there[m.MessageID]; kept.Content != m.Content || kept.Status != m.Status {
				lost++
			}
		}
	}
	l.t.Logf("%d sends, %d retries, %d replies, %d of them lost", l.sent.Load(), l.retries.Load(), l.answered.Load(), lost)
	return lost
}

// wholeHistory returns all messages of a session.
func (l *load) wholeHistory(session string) (all []message) {
	cursor := ""
	for {
		got := l.nodes[1].patient("GET", messages(session)+"?order=asc&limit=100"+cursor, nil)
		page := decodeInto[struct {
			Data       []message
			Pagination struct {
				HasMore    bool
				NextCursor string
			}
		}](l.t, got)
		all = append(all, page.Data...)
		if !page.Pagination.HasMore {
			return all
		}
		cursor = "&cursor=" + page.Pagination.NextCursor
	}
}

// cutReplication disconnects the replicas of a master and keeps them from reconnecting.
func cutReplication(master *redistest.Server) {
	master.Do("ACL", "SETUSER", "default", "-psync", "-sync")
	master.Do("CLIENT", "KILL", "TYPE", "replica")
}

func TestFailover_UnderLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		query    string
		cut      bool // before the failover, the link from the master to the replica is cut
		loses    bool // the failover must lose replies
		rejoined bool // the old master comes back as a replica
	}{
		"replica_up_to_date_sends_go_on":     {},
		"cut_link_replies_lost":              {cut: true, loses: true},
		"cut_link_waitReplicas_nothing_lost": {query: "?waitReplicas=1", cut: true, rejoined: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := redistest.Sentinel(t)
			l := newLoad(t, w.URL+test.query, 8)
			l.start()
			l.awaitReplies(40)
			if test.cut {
				cutReplication(w.Master)
				if test.loses {
					l.awaitReplies(16)
				} else {
					again := l.retries.Load()
					l.nodes[0].poll("503 responses", func() bool {
						// On a busy machine, the Sentinels may replace the master before the test kills it.
						return l.retries.Load() > again+16 || strings.Contains(w.Replica.Do("INFO", "replication"), "role:master")
					})
				}
			}
			w.Master.Kill()
			w.AwaitFailover()
			if test.rejoined {
				w.Master.Restart()
			}
			l.awaitReplies(40)
			lost := l.end()
			if lost > 0 && test.query != "" {
				t.Errorf("%d replies that clients got are lost", lost)
			}
			if test.loses && lost == 0 {
				t.Error("no reply was lost: the link was not cut, or the load is too small")
			}
		})
	}
}

// TestFailover_LostBegin_ReplyInterrupted restarts Redis with the data from before a turn began. A failover can have that effect.
func TestFailover_LostBegin_ReplyInterrupted(t *testing.T) {
	t.Parallel()
	redis, model := redistest.Single(t), newDirected()
	a, b := startOn(t, redis.URL+redistest.Patient, model), startOn(t, redis.URL+redistest.Patient, model)
	session := a.session()
	here, there := a.dial(), b.dial()
	here.mustSubscribe(session, "")
	there.mustSubscribe(session, "")
	redis.Do("SAVE")
	waiting := a.later("POST", messages(session), content("hello"), "Idempotency-Key", "one")
	c := model.next(t)
	c.say("Half of it")
	there.next("message.created")
	there.deltas(t, len("Half of it"))
	redis.Restart()
	if f := there.until("message.interrupted"); f.Message.Content != "Half of it" {
		t.Errorf("the other node's viewer was shown %s", f.raw)
	}
	c.say(", and the rest")
	c.end()
	if f := here.until("message.interrupted"); f.Message.Content != "Half of it, and the rest" {
		t.Errorf("the node's own viewer was shown %s", f.raw)
	}
	if got := within(t, "the waiting caller's response", waiting); got.status != http.StatusServiceUnavailable {
		t.Errorf("the waiting caller got %d %s", got.status, got.raw)
	}
	again := b.later("POST", messages(session), content("hello"), "Idempotency-Key", "one")
	model.answer(t, "All of it")
	if m := decodeInto[message](t, within(t, "the repeat's response", again)); m.Content != "All of it" {
		t.Errorf("the repeat got %+v", m)
	}
	a.awaitHistory(session, "hello", "All of it")
	for name, s := range map[string]*socket{"a": here, "b": there} {
		if f := s.until("message.completed"); f.Message.Content != "All of it" {
			t.Errorf("the viewer on node %s was shown %s", name, f.raw)
		}
	}
}

// TestFailover_LostEnd_NextSendSucceeds restarts Redis with the data from before a turn ended.
func TestFailover_LostEnd_NextSendSucceeds(t *testing.T) {
	t.Parallel()
	redis, model := redistest.Single(t), newDirected()
	a, b := startOn(t, redis.URL+redistest.Patient, model), startOn(t, redis.URL+redistest.Patient, model)
	session := a.session()
	there := b.dial()
	there.mustSubscribe(session, "")
	waiting := a.later("POST", messages(session), content("hello"))
	c := model.next(t)
	c.say("All of it")
	there.next("message.created")
	there.deltas(t, len("All of it")) // the other node shows the text, so the journal contains the text
	redis.Do("SAVE")
	c.end()
	if got := within(t, "the response", waiting); got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.raw)
	}
	redis.Restart()
	var next <-chan answer
	b.poll("the next send to be accepted", func() bool {
		next = b.later("POST", messages(session), content("again"), "Idempotency-Key", "next")
		select {
		case c := <-model.calls:
			c.say("And more")
			c.end()
			return true
		case got := <-next:
			return got.status != http.StatusServiceUnavailable
		}
	})
	if m := decodeInto[message](t, within(t, "the next response", next)); m.Content != "And more" {
		t.Errorf("the next send got %+v", m)
	}
	all := b.history(session)
	if len(all) != 4 || all[1].Status != "interrupted" || all[1].Content != "All of it" {
		t.Errorf("the history is %+v", all)
	}
}
