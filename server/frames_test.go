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

// flood sends a frame on a new socket for two seconds, as often as the server reads it.
func (f *flooding) flood(p *parley, frame string) {
	p.t.Helper()
	s := p.dial()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	go func() {
		for s.conn.Write(ctx, websocket.MessageText, []byte(frame)) == nil {
		}
	}()
	for {
		_, response, err := s.conn.Read(ctx)
		switch text := string(response); {
		case err != nil:
			return
		case strings.Contains(text, `"limit":"framesPerMinute"`):
			f.refused.Add(1)
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
// which cause replays. The limit is either so high that it has no effect, or that of the tier free. The test logs the number of
// served frames, and the number of scripts that Redis ran.
func TestFrames_FloodOfOneKey_AtMost1200Served(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most   string
		replay bool
	}{
		"subscribes, no limit": {"1000000000", false}, "replays, no limit": {"1000000000", true},
		"subscribes, 1,200 a minute": {"1200", false}, "replays, 1,200 a minute": {"1200", true},
	} {
		redis := redistest.Single(t)
		p := startOn(t, redis.URL+redistest.Patient, echo, withTiers(t, `{"pro":{"framesPerMinute":`+test.most+`}}`))
		session := p.session()
		frame := `{"type":"subscribe","id":"1","sessionId":"` + session + `"`
		if test.replay {
			cursor := p.must("GET", "/v1/sessions/"+session, nil)["stream"].(map[string]any)["cursor"].(string)
			frame += `,"after":"` + cursor + `"`
		}
		p.send(session, "hello")
		before := scriptCalls(redis)
		var f flooding
		f.flood(p, frame+"}")
		served, refused, calls := f.served.Load(), f.refused.Load(), scriptCalls(redis)-before
		t.Logf("%s: in 2 s, %d frames served and %d refused; Redis ran %d scripts", name, served, refused, calls)
		if test.most != "1200" {
			continue
		}
		if served > 1_200 || served == 1_200 && (refused == 0 || refused > 15) {
			t.Errorf("%s: %d frames were served and %d refused, want 1,200 and about 5 a second", name, served, refused)
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
