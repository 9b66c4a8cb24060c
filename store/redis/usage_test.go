package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/stream"
)

// aBusyHour is what a busy account uses in an hour, of 200 turns.
func aBusyHour(random *rand.Rand) usage.Bucket {
	b := usage.Bucket{Sessions: 40, SessionTime: 9_000_000, UserMessages: 200, AssistantMessages: 200, Requests: 900}
	for range 200 {
		reply := conversation.Message{Status: stream.Completed, Usage: &conversation.Usage{Prompt: 1500, Completion: 250}}
		first := time.Duration(200+300*random.ExpFloat64()) * time.Millisecond
		b.Add(new(conversation.UsageOfEnding(&reply, conversation.Timing{FirstToken: first, Duration: 10 * first})))
	}
	return b
}

// TestAYearOfHoursIsReadInOneTrip prints what a year of a busy account takes in Redis, and how long it takes to read: the
// year of the embedded store's test of that name.
func TestAYearOfHoursIsReadInOneTrip(t *testing.T) {
	const year = 365 * 24
	s, owner := newStore(t), newOwner()
	tag, random, now := tagOfOwner(owner), rand.New(rand.NewPCG(1, 2)), usage.HourOf(time.Now().UnixMilli())
	days := make(map[usage.Hour][]any)
	for hour := now - year + 1; hour <= now; hour++ {
		b := aBusyHour(random)
		for field, n := range b.All() {
			days[hour/24] = append(days[hour/24], int(hour%24)*fieldsAnHour+int(field), n)
		}
	}
	size := int64(0)
	for day, counts := range days {
		key := fmt.Sprint(tag, ":h:", int64(day)) // lua/usage.lua
		must(t, s.db.HSet(t.Context(), key, counts...).Err())
		takes, err := s.db.MemoryUsage(t.Context(), key, 0).Result()
		must(t, err)
		size += takes
	}
	_, err := s.Usage(t.Context(), owner, now, now+1) // what a server is told once is not an operation's
	must(t, err)

	var counted trips
	s.db.AddHook(&counted)
	start := time.Now()
	used, err := s.Usage(t.Context(), owner, now-year+1, now+1)
	read := time.Since(start)
	must(t, err)
	start = time.Now()
	series, figures := usage.Series(used.Hours, now-year+1, now+1, usage.ByHour), usage.FiguresOf(used.Hours)
	made := time.Since(start)
	same(t, "trips", counted.n.Load(), 1)
	if len(used.Hours) != year || len(series) != year || figures.Messages.Total != 400*year {
		t.Errorf("%d hours, a series of %d, %+v", len(used.Hours), len(series), figures)
	}
	slow, err := s.db.SlowLogGet(t.Context(), 1).Result()
	must(t, err)
	t.Logf("a year of hours, 200 turns in each: %d bytes an hour, %.1f MiB in Redis; read in %v, made a series by the hour in %v",
		size/year, float64(size)/(1<<20), read, made)
	if len(slow) > 0 { // of more than 10 ms
		t.Logf("for %v of that Redis does nothing else", slow[0].Duration)
	}
}
