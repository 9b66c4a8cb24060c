package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"parley/store/redis/redistest"
)

// Redis is suspended before the drain begins, and responds again only after the process has ended. The caller and the viewer get
// their ends. The process ends within the drain timeout and drainMargin. The next node ends the reply.
func TestDrain_RedisSuspended_EndsWithinMargin(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	s := newScene(t, "PARLEY_STORE="+redis.URL, "PARLEY_DRAIN_TIMEOUT=300ms")
	<-time.After(200 * time.Millisecond) // the journal, which writes every 50 ms, stores the text
	redis.Stop()
	began := time.Now()
	s.signal(syscall.SIGTERM)
	if last := s.viewer.end(); last["type"] == "message.interrupted" {
		t.Errorf("the viewer saw an end that is not stored: %v", last)
	}
	if a := <-s.caller; a.err != nil || a.status != 503 || a.body["error"].(map[string]any)["code"] != "service_unavailable" {
		t.Errorf("the caller got %+v", a)
	}
	state, took := s.wait(), time.Since(began)
	t.Logf("the process ended after %v with exit code %d", took, state.ExitCode())
	if state.ExitCode() < 0 {
		t.Errorf("the process ended with %v:\n%s", state, s.errs)
	}
	const slack = 30 * time.Second // for a busy machine
	if most := 300*time.Millisecond + drainMargin + slack; took > most {
		t.Errorf("the drain took %v, want at most %v:\n%s", took, most, s.errs)
	}
	if !strings.Contains(s.errs.String(), "cause=ending_not_stored") {
		t.Errorf("the log has no cause of the 503:\n%s", s.errs)
	}
	redis.Cont()
	next := serveIn(t, t.TempDir(), append(s.model.env(), "PARLEY_STORE="+redis.URL+redistest.Patient)...)
	var reply map[string]any
	for late := time.Now().Add(timeout); reply["status"] == nil || reply["status"] == "streaming"; <-time.After(500 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the reply has no end: %v", reply)
		}
		reply = next.must("GET", "/v1/sessions/"+s.session+"/messages", nil)["data"].([]any)[0].(map[string]any)
	}
	if reply["status"] != "interrupted" || !strings.HasPrefix(words(held), reply["content"].(string)) {
		t.Errorf("the reply ended as %v", reply)
	}
}
