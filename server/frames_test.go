package server_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"parley/store/redis/redistest"
)

// flooding counts the responses to a flood of frames.
type flooding struct{ served, refused atomic.Int64 }

// flood sends a frame on a new socket, as often as the server reads it, until the server has refused six frames. It returns the
// time from the first of these refusals to the last.
func (f *flooding) flood(p *parley, frame string) time.Duration {
	p.t.Helper()
	const refusals = 6
	s := p.dial()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	go func() {
		for s.conn.Write(ctx, websocket.MessageText, []byte(frame)) == nil {
		}
	}()
	var first time.Time
	for refused := 0; ; {
		_, response, err := s.conn.Read(ctx)
		switch text := string(response); {
		case err != nil:
			p.t.Error(err)
			return 0
		case strings.Contains(text, `"limit":"framesPerMinute"`):
			f.refused.Add(1)
			if refused++; refused == 1 {
				first = time.Now()
			} else if refused == refusals {
				return time.Since(first)
			}
		case strings.Contains(text, `"replyTo"`):
			f.served.Add(1)
		}
	}
}

// scriptCalls returns the number of scripts that Redis has run.
func scriptCalls(redis *redistest.Server) (n int) {
	for _, calls := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(redis.Do("INFO", "commandstats"), -1) {
		more, _ := strconv.Atoi(calls[1])
		n += more
	}
	return n
}

// TestFrames_FloodOfOneKey_AtMost1200Served floods a node with frames of one key: subscribes, and subscribes with a cursor,
// which cause replays. The limit is that of the tier free. The test logs the number of scripts that Redis ran.
func TestFrames_FloodOfOneKey_AtMost1200Served(t *testing.T) {
	t.Parallel()
	for _, replay := range []bool{false, true} {
		redis := redistest.Single(t)
		p := startOn(t, redis.URL+redistest.Patient, echo, withTiers(t, `{"pro":{"framesPerMinute":1200}}`))
		session := p.session()
		frame := `{"type":"subscribe","id":"1","sessionId":"` + session + `"`
		if replay {
			cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
			frame += `,"after":"` + cursor + `"`
		}
		p.send(session, "hello")
		before := scriptCalls(redis)
		var f flooding
		took := f.flood(p, frame+"}")
		served, refused := f.served.Load(), f.refused.Load()
		t.Logf("replays %t: %d frames served; the %d refusals took %v; Redis ran %d scripts", replay, served, refused, took, scriptCalls(redis)-before)
		if served > 1_200 {
			t.Errorf("replays %t: %d frames were served, want at most 1,200", replay, served)
		}
		if took < 800*time.Millisecond { // the server reads about 5 frames a second
			t.Errorf("replays %t: the server refused %d frames within %v", replay, refused, took)
		}
	}
}

func TestNodes_FloodOfFrames_OneLimitForBoth(t *testing.T) {
	t.Parallel()
	a, b := nodes(t, echo, withTiers(t, `{"pro":{"framesPerMinute":300}}`))
	var f flooding
	done := make(chan struct{})
	go func() { defer close(done); f.flood(b, `{"type":"ping","id":"1"}`) }()
	f.flood(a, `{"type":"ping","id":"1"}`)
	<-done
	if served := f.served.Load(); served > 300 || served < 200 {
		t.Errorf("both nodes together served %d frames, want nearly 300", served)
	}
	if f.refused.Load() == 0 {
		t.Error("no frame was refused")
	}
}
