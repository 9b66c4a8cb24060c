package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"parley/cmd/chaos/history"
)

// modelErrors are the error codes of a model that fails.
var modelErrors = []string{"provider_error", "provider_timeout"}

func modelRows() []*row {
	return []*row{
		{
			name: "model-lies", fault: "the model stalls, breaks off, sends garbage or an error, or refuses",
			where: "embedded store", allowed: modelErrors, lies: []string{stalls, cuts, garbage, fails, refuses},
			try: func(w *world) {
				w.embedded(w.TempDir(), "PARLEY_MODEL_STALL=2s")
				w.underLoad([]step{{12 * time.Second, "end", func() {}}})
			},
			ending: time.Second, short: true,
		},
		{
			name: "model-endless", fault: "the model ignores its limit", where: "embedded store",
			try: endlessReplies, short: true,
		},
	}
}

const (
	// repliesWithoutEnd is the number of replies without an end at the same time.
	repliesWithoutEnd = 3
	// replyBound is the maximum size of a reply's text, in bytes. memoryPerByte is the maximum memory for a byte of
	// live text, in bytes.
	replyBound, memoryPerByte = 1 << 20, 4
	// slack is the memory that a server may take for other things, such as the garbage of its collector. On a busy machine, 48 MB
	// were too little. Without a bound, the replies would take 1 GB.
	slack = 128 << 20
)

// endlessReplies reads some replies of a model that ignores its limit. Each must end at its bound, and take little memory.
func endlessReplies(w *world) {
	n := w.embedded(w.TempDir())
	w.say("schedule: %d endless replies", repliesWithoutEnd)
	before := n.memory()
	var readers sync.WaitGroup
	for i := range repliesWithoutEnd {
		c := &client{w: w, name: fmt.Sprintf("e%d", i), random: rand.New(rand.NewPCG(w.random.Uint64(), 0)), desk: &desk{}}
		readers.Go(func() {
			s := history.Send{Session: w.createSession(), Content: c.name + "-1 say 3 then " + endless, Begun: time.Now()}
			if c.post(&s, true) {
				c.view(s)
			}
			w.record.send(s)
		})
	}
	readers.Wait()
	w.finish()
	for _, m := range w.repliesOf("then " + endless) {
		if size := len(m.Content); size > replyBound || m.Status != "completed" || m.FinishReason != "length" {
			w.broken("a reply has a bound", "reply %s ended as %s (%s) with %d bytes", m.ID, m.Status, m.FinishReason, size)
		}
	}
	if grown, most := n.memory()-before, int64(repliesWithoutEnd*replyBound*memoryPerByte+slack); grown > most {
		w.broken("memory is bounded", "%d endless replies took %d MB, more than %d MB", repliesWithoutEnd, grown>>20, most>>20)
	}
}

// repliesOf returns the ends that viewers got of replies to messages with that suffix.
func (w *world) repliesOf(suffix string) (all []history.Message) {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	for _, v := range w.record.h.Views {
		asked := slices.ContainsFunc(w.record.h.Sends, func(s history.Send) bool {
			return s.Reply == v.Reply && len(s.Content) > len(suffix) && s.Content[len(s.Content)-len(suffix):] == suffix
		})
		if asked {
			all = append(all, v.Ends...)
		}
	}
	return all
}
