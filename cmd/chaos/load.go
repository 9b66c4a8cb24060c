package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"parley/cmd/chaos/history"
)

// step is one fault, or the end of one, in the schedule of a try.
type step struct {
	after time.Duration // the pause before this step
	what  string
	do    func()
}

const (
	// clientsOfLoad is the number of clients, and desksOfLoad is the number of their desks. They keep replies live at
	// all times, and cost a small part of a core.
	clientsOfLoad, desksOfLoad = 6, 3
	// probeEvery is the pause between two writes of the prober. It is the resolution of an outage.
	probeEvery = 100 * time.Millisecond
	// warmUp is the time of load before the first fault. settle is the time of load after the recovery.
	warmUp, settle = 1500 * time.Millisecond, 1500 * time.Millisecond
	// recovery is the longest time from the last step until writes succeed again. Only a service that does not recover reaches
	// it; each row has a lower bound for its outage.
	recovery = 75 * time.Second
)

// underLoad runs the steps while clients use the service. Then it lets the service recover, ends the load, and checks the
// history.
func (w *world) underLoad(steps []step) {
	w.say("schedule: %s", timetable(steps))
	w.load()
	time.Sleep(warmUp)
	for _, s := range steps {
		time.Sleep(s.after)
		s.do()
	}
	w.awaitWrites(recovery)
	time.Sleep(settle)
	w.finish()
}

// timetable describes steps, with their times since the beginning of the load.
func timetable(steps []step) string {
	at, all := warmUp, []string(nil)
	for _, s := range steps {
		at += s.after
		all = append(all, fmt.Sprintf("%.1f s %s", at.Seconds(), s.what))
	}
	return strings.Join(all, ", ")
}

// load starts the clients and the prober.
func (w *world) load() {
	desks := make([]*desk, desksOfLoad)
	for i := range desks {
		desks[i] = &desk{}
	}
	for i := range clientsOfLoad {
		c := &client{
			w: w, name: fmt.Sprintf("c%d", i), random: rand.New(rand.NewPCG(w.random.Uint64(), 0)), desk: desks[i%desksOfLoad],
			ws: w.socketClient(),
		}
		w.clients.Go(c.run)
	}
	w.clients.Go(func() {
		for !w.over() {
			a := w.api.call("POST", "/v1/sessions", map[string]any{"userId": user}, "", soon)
			if a.status == 200 {
				w.record.success()
			}
			w.pause(probeEvery)
		}
	})
}

// awaitWrites waits until the prober's next write succeeds.
func (w *world) awaitWrites(timeout time.Duration) {
	begun := time.Now()
	after := func() bool {
		w.record.mu.Lock()
		defer w.record.mu.Unlock()
		s := w.record.successes
		return len(s) > 0 && s[len(s)-1].After(begun)
	}
	if _, ok := eventually(timeout, after); !ok {
		w.broken(history.Answered, "no write succeeds within %v after the last fault", timeout)
	}
}

const (
	// lastSends is the longest wait for the last requests of the clients. It is longer than each of their deadlines.
	lastSends = queued + viewing + 10*time.Second
	// lastEnds is the longest wait for the ends of replies: other nodes end the replies of a dead node within 5 s, and a viewer
	// polls within 6 s.
	lastEnds = 15 * time.Second
)

// finish ends the load, waits until all replies have ended, reads what the store has, and checks the history.
func (w *world) finish() {
	end := time.Now()
	close(w.ended)
	done := make(chan struct{})
	go func() { w.clients.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lastSends):
		w.broken(history.Answered, "clients still wait %v after the end of the load", lastSends)
		return
	}
	stored := w.stored()
	if _, ok := eventually(lastEnds, func() bool { return w.waiting() == 0 || w.patience.Err() != nil }); !ok {
		w.broken(history.Answered, "watchers still wait for the ends of %d replies after %v", w.waiting(), lastEnds)
	}
	w.unwatch()
	w.watchers.Wait()
	w.worst.outage, w.worst.ending = w.record.outage(end), w.record.ending(w.model)
	w.judge(stored)
}

// judge checks the history and the bounds of the row.
func (w *world) judge(stored []history.Session) {
	for _, n := range w.nodes {
		w.worst.memory = max(w.worst.memory, n.memory())
	}
	w.record.mu.Lock()
	h := w.record.h
	w.record.mu.Unlock()
	h.Stored, h.Model, h.Lossy, h.Allowed = stored, w.model.answers(), w.row.lossy, w.row.allowed
	h.Halted = w.patience.Err() != nil
	for _, v := range history.Check(h) {
		w.broken(v.Promise, "%s", v.About)
	}
	if most := w.row.outage + w.margin; w.row.outage > 0 && w.worst.outage > most {
		w.broken(history.Answered, "no write succeeded for %v, longer than %v", w.worst.outage.Round(time.Millisecond), most)
	}
	if most := w.row.ending + w.margin; w.row.ending > 0 && w.worst.ending > most {
		took := w.worst.ending.Round(time.Millisecond)
		w.broken(history.OneEnding, "a reply ended %v after the model, longer than %v", took, most)
	}
}

// stored reads the sessions of the clients through the API. It waits until no reply is streaming, at most lastEnds.
func (w *world) stored() (all []history.Session) {
	read := func() bool {
		all = nil
		streaming := false
		w.record.mu.Lock()
		sessions := w.record.sessions
		w.record.mu.Unlock()
		for _, id := range sessions {
			s, ok := w.storedSession(id)
			if !ok {
				continue
			}
			for _, m := range s.Messages {
				streaming = streaming || m.Status == "streaming"
			}
			all = append(all, s)
		}
		return !streaming || w.patience.Err() != nil
	}
	eventually(lastEnds, read)
	return all
}

// storedSession reads a session and its messages. It returns false if the session does not exist or cannot be read.
func (w *world) storedSession(id string) (history.Session, bool) {
	return readSession(id, func(path string) (a *reply) {
		eventually(10*time.Second, func() bool { // 10 s: a store that is available again responds sooner
			a = w.api.call("GET", path, nil, "", soon, 404)
			return w.patience.Err() != nil || a.status != 0 && a.status != 503
		})
		return a
	})
}

// readSession reads a session and its messages with get. It returns false if the session does not exist or cannot be read.
func readSession(id string, get func(path string) *reply) (s history.Session, ok bool) {
	a := get("/v1/sessions/" + id)
	if a.status != 200 {
		return s, false
	}
	s = history.Session{ID: id, MessageCount: a.MessageCount, Usage: a.TokenUsage.Total}
	for cursor := ""; ; {
		page := get("/v1/sessions/" + id + "/messages?order=asc&limit=100" + cursor)
		if page.status != 200 {
			return s, false
		}
		for _, m := range page.Data {
			s.Messages = append(s.Messages, m.message())
		}
		if !page.Pagination.HasMore {
			return s, true
		}
		cursor = "&cursor=" + page.Pagination.NextCursor
	}
}
