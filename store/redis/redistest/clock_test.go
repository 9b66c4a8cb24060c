package redistest

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAdvance_KeysExpireByServerClock(t *testing.T) {
	s := SingleWithClock(t)
	clock := func() time.Time {
		seconds, err := strconv.ParseInt(strings.Fields(s.Do("TIME"))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Unix(seconds, 0)
	}
	for _, step := range []time.Duration{0, time.Hour, 3 * 24 * time.Hour, 400 * 24 * time.Hour} {
		s.Advance(step)
		if off := s.Now().Sub(clock()); off < -time.Minute || off > time.Minute { // each step that moves the clock is longer
			t.Errorf("after Advance(%v) the clock is off by %v", step, off)
		}
	}
	s.Do("SET", "short", "1", "EX", "60")
	s.Do("SET", "long", "1", "EX", "3600")
	s.Advance(61 * time.Second)
	if kept := s.Do("EXISTS", "short") + s.Do("EXISTS", "long"); kept != ":0:1" {
		t.Errorf("EXISTS of the short and the long key: %s, want :0:1", kept)
	}
	s.Advance(time.Hour)
	s.await("it does not remove expired keys by itself", func() bool { return s.try("DBSIZE") == ":0" })
	s.Restart()
	if off := s.Now().Sub(clock()); off < -time.Minute || off > time.Minute {
		t.Errorf("after a restart the clock is off by %v", off)
	}
}
