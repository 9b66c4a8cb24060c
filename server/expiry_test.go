package server_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/store/redis/redistest"
)

// outlives matches the Redis keys that may outlive a session. Those keys hold API keys, accounts, the audit log,
// open sockets, usage counts and nodes.
var outlives = regexp.MustCompile(`^(k:.*|\{a:[^}]*\}:(account|keys|ki|kx|audit|sockets|key:key_.*|h:\d+|day)|nodes)$`)

// expiring has a Redis server with its own clock, two nodes on that server, and words that Redis must not contain after a day.
type expiring struct {
	t     *testing.T
	redis *redistest.Server
	model *directed
	a, b  *parley
	words map[string]string // the description of each word
}

func newExpiring(t *testing.T) *expiring {
	f := &expiring{t: t, redis: redistest.SingleWithClock(t, "--rdbcompression", "no"), model: newDirected(), words: make(map[string]string)}
	f.a, f.b = startOn(t, f.redis.URL+redistest.Patient, f.model), startOn(t, f.redis.URL+redistest.Patient, f.model)
	return f
}

// found returns a description of each place in Redis that contains one of the words.
func (f *expiring) found(words map[string]string) (all []string) {
	for key, value := range f.redis.Contents() {
		for word, what := range words {
			if strings.Contains(key, word) || strings.Contains(value, word) {
				all = append(all, what+" in "+strings.ReplaceAll(key, word, "<"+what+">"))
			}
		}
	}
	slices.Sort(all)
	return all
}

// leftovers returns the Redis keys that should have expired with a session.
func (f *expiring) leftovers() (all []string) {
	for key := range f.redis.Contents() {
		if !outlives.MatchString(key) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

// awaitNone waits until find returns an empty list. The parameter when names the moment in the failure message.
func (f *expiring) awaitNone(when string, find func() []string) {
	f.t.Helper()
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left := find()
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			f.t.Fatalf("%s, Redis still has %q", when, left)
		}
	}
}

// converse creates a session for a new user and sends a message, which gets a reply. It adds all ids and texts to words.
func (f *expiring) converse(name, secret string) (session string) {
	f.t.Helper()
	bearer := []string{"Authorization", "Bearer " + secret}
	user := "user_" + (name + "0123456789abcdef")[:16]
	made := f.a.call("POST", "/v1/sessions", map[string]any{"userId": user, "metadata": map[string]any{"note": name + " metadata"}},
		append(bearer, "Idempotency-Key", name+"-creation")...)
	if made.status != 200 {
		f.t.Fatalf("%d %s", made.status, made.raw)
	}
	session = made.body["sessionId"].(string)
	answered := f.b.later("POST", messages(session), content(name+" asks"), append(bearer, "Idempotency-Key", name+"-send")...)
	c := f.model.next(f.t)
	c.say(name + " is answered")
	c.end()
	reply := decodeInto[message](f.t, within(f.t, "the response", answered))
	for word, what := range map[string]string{
		session: "session", user: "user", reply.MessageID: "reply id", name + " metadata": "metadata", name + " asks": "question",
		name + " is answered": "reply text", name + "-creation": "idempotency key of the creation", name + "-send": "idempotency key of the send",
	} {
		f.words[word] = name + "'s " + what
	}
	return session
}

func (f *expiring) watch(p *parley, session string) *socket {
	s := p.dial()
	s.mustSubscribe(session, "")
	return s
}

func TestRedis_SessionExpired_NothingLeftInRedis(t *testing.T) {
	t.Parallel()
	f := newExpiring(t)
	_, other := f.a.newKey("bravo", auth.Test, auth.NewKey{Name: "n", Scopes: []auth.Scope{auth.Admin}})
	idle, live := f.converse("idle", adminKey), f.converse("live", adminKey)
	f.converse("left", other) // no later request uses this account
	viewers := map[string]*socket{
		"idle session, node a": f.watch(f.a, idle), "idle session, node b": f.watch(f.b, idle),
		"live session, node a": f.watch(f.a, live), "live session, node b": f.watch(f.b, live),
	}
	begun := f.a.begin(live, "live asks again")
	c := f.model.next(t)
	c.say("Half of it")
	f.words["live asks again"], f.words["Half of it"], f.words[begun["messageId"].(string)] = "second question", "live text", "live reply"
	viewers["live session, node b"].until("message.delta") // node b shows the text, so the journal contains the text
	f.a.must("POST", "/v1/stream/tickets", map[string]any{})
	for word, what := range f.words {
		if len(f.found(map[string]string{word: what})) == 0 {
			t.Errorf("Redis does not contain %s while the session exists", what)
		}
	}

	f.redis.Advance(24*time.Hour + time.Minute)
	for who, s := range viewers {
		for {
			got := s.any()
			if got.Type == "session.expired" {
				break
			}
			if strings.HasPrefix(got.Type, "session.") || strings.HasPrefix(got.Type, "message.c") && got.Message.Status == "cancelled" {
				t.Fatalf("the viewer (%s) got %s", who, got.raw)
			}
		}
	}
	within(t, "the model's request to be closed", c.closed)
	f.awaitNone("after 24 hours", func() []string { return f.found(f.words) })
	f.settledOnce("after 24 hours")
	f.redis.Advance(10 * time.Minute) // the windows of the rate limits end
	f.awaitNone("ten minutes later", f.leftovers)
	for _, p := range []*parley{f.a, f.b} {
		checkError(t, p.call("GET", "/v1/sessions/"+live, nil), 404, "session_not_found", "")
		if list := p.must("GET", "/v1/sessions", nil)["data"].([]any); len(list) != 0 {
			t.Errorf("the list still has the sessions %v", list)
		}
	}
	f.settledOnce("after ten more minutes")
	if found := f.found(f.words); len(found) > 0 {
		t.Errorf("after further requests, Redis contains %q", found)
	}

	f.countsExpire()
	f.a.must("GET", "/v1/sessions", nil) // API keys and accounts do not expire
	if got := f.b.call("GET", "/v1/sessions", nil, "Authorization", "Bearer "+other); got.status != 200 {
		t.Errorf("%d %s", got.status, got.raw)
	}
}

// countsExpire advances Redis' clock by 402 days, and checks that all counts of usage have expired. Counts expire after 400 days.
func (f *expiring) countsExpire() {
	f.t.Helper()
	f.redis.Advance(402 * 24 * time.Hour)
	f.awaitNone("after 402 days", func() (counts []string) {
		for key := range f.redis.Contents() {
			if strings.Contains(key, ":h:") || strings.Contains(key, ":p:") || strings.HasSuffix(key, ":day") {
				counts = append(counts, key)
			}
		}
		return counts
	})
}

// settledOnce checks the metrics of both nodes: the two completed replies, and the live reply in the expired session, must each
// count once.
func (f *expiring) settledOnce(when string) {
	f.t.Helper()
	now := f.redis.Now()
	query := "?startDate=" + now.AddDate(0, 0, -3).UTC().Format(time.RFC3339) + "&endDate=" + now.Add(time.Hour).UTC().Format(time.RFC3339)
	for name, p := range map[string]*parley{"a": f.a, "b": f.b} {
		p.awaitNoLiveReply()
		m := p.must("GET", "/v1/analytics/metrics"+query, nil)
		replies, sessions, tokens := m["replies"].(map[string]any), m["sessions"].(map[string]any), m["tokens"].(map[string]any)
		if replies["completed"] != 2.0 || replies["cancelled"] != 1.0 || replies["failed"] != 0.0 || replies["interrupted"] != 0.0 ||
			sessions["total"] != 2.0 || sessions["active"] != 0.0 {
			f.t.Errorf("%s, node %s counts %v", when, name, m)
		}
		// The three replies have 4, 4 and 3 tokens.
		if tokens["completion"] != 11.0 {
			f.t.Errorf("%s, node %s counts the tokens %v", when, name, tokens)
		}
	}
}

// awaitNoLiveReply waits until no reply is live on the node.
func (p *parley) awaitNoLiveReply() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for p.service.LiveReplies() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("%d replies are still live", p.service.LiveReplies())
		}
	}
}

func TestRedis_SessionDeleted_TextGoneAtOnce(t *testing.T) {
	t.Parallel()
	f := newExpiring(t)
	session := f.converse("gone", adminKey)
	f.a.begin(session, "gone asks again")
	c := f.model.next(t)
	c.say("Half of it")
	f.words["gone asks again"], f.words["Half of it"] = "second question", "live text"
	f.awaitFound("Half of it")
	f.b.must("DELETE", "/v1/sessions/"+session, nil)
	texts := maps.Clone(f.words)
	maps.DeleteFunc(texts, func(_, what string) bool {
		return !strings.Contains(what, "question") && !strings.Contains(what, "text") && !strings.Contains(what, "metadata") &&
			!strings.Contains(what, "idempotency key")
	})
	if found := f.found(texts); len(texts) != 7 || len(found) > 0 {
		t.Errorf("of the texts %v, Redis still contains %q", texts, found)
	}
	within(t, "the model's request to be closed", c.closed)
	f.a.awaitNoLiveReply()
	f.redis.Advance(24 * time.Hour)
	f.awaitNone("a day later", func() []string { return f.found(f.words) })
}

// awaitFound waits until Redis contains a word.
func (f *expiring) awaitFound(word string) {
	f.t.Helper()
	f.awaitNone("while the test waits for "+word, func() []string {
		if len(f.found(map[string]string{word: word})) == 0 {
			return []string{"no such text"}
		}
		return nil
	})
}
