package redis

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/redis/redistest"
	"parley/stream"
)

// aBusyHour returns the usage of a busy account in one hour: 200 turns with random durations.
func aBusyHour(random *rand.Rand) usage.Bucket {
	b := usage.Bucket{Sessions: 40, SessionTime: 9_000_000, UserMessages: 200, AssistantMessages: 200, Requests: 900}
	for range 200 {
		reply := conversation.Message{Status: stream.Completed, Usage: &conversation.Usage{Prompt: 1500, Completion: 250}}
		first := time.Duration(200+300*random.ExpFloat64()) * time.Millisecond
		b.Add(new(conversation.UsageOfTurnEnd(&reply, conversation.Timing{FirstToken: first, Duration: 10 * first})))
	}
	return b
}

// fillYear writes the counts of a busy account for the year that ends with the hour now. Each day is a hash; no day is packed.
func fillYear(t *testing.T, s *Store, tag string, now usage.Hour) {
	random, days := rand.New(rand.NewPCG(1, 2)), make(map[usage.Hour][]any)
	busy := make([]usage.Bucket, 100) // making each of the 8,760 hours from 200 turns would take seconds
	for i := range busy {
		busy[i] = aBusyHour(random)
	}
	for hour := now - year + 1; hour <= now; hour++ {
		b := busy[random.IntN(len(busy))]
		for field, n := range b.All() {
			days[hour/24] = append(days[hour/24], int(hour%24)*fieldsAnHour+int(field), n)
		}
	}
	for day, counts := range days {
		must(t, s.db.HSet(t.Context(), countsKey(tag, strconv.Itoa(int(day))), counts...).Err())
	}
}

// blocked returns the total time that Redis has spent on scripts so far. While Redis runs a script, it serves no other command.
func blocked(redis *redistest.Server) time.Duration {
	var all time.Duration
	for line := range strings.Lines(redis.Do("INFO", "commandstats")) {
		if _, figures, found := strings.Cut(line, "cmdstat_eval"); found { // matches eval and evalsha
			_, figures, _ = strings.Cut(figures, "usec=")
			figures, _, _ = strings.Cut(figures, ",")
			n, _ := strconv.Atoi(figures)
			all += time.Duration(n) * time.Microsecond
		}
	}
	return all
}

const year = 365 * 24 // hours

// TestUsage_Year_OneRoundTrip reads the usage of a busy account's year, first with no day packed, and then packed. It logs the
// memory that the counts take, and the time for which a read blocks Redis.
func TestUsage_Year_OneRoundTrip(t *testing.T) {
	t.Parallel()
	redis := redistest.Single(t)
	s, owner, now := open(t, redis.URL), newOwner(), usage.HourOf(time.Now().UnixMilli())
	fillYear(t, s, tagOfOwner(owner), now)
	_, err := s.Usage(t.Context(), owner, now, now+1) // loading the script is not part of the operation
	must(t, err)
	var counted trips
	s.db.AddHook(&counted)
	read := func(from, to usage.Hour) (hours []usage.Hourly, took, blocks time.Duration) {
		for { // on a busy machine, days that are not packed may take too long; each attempt packs some of them
			before, start := blocked(redis), time.Now()
			used, err := s.Usage(t.Context(), owner, from, to)
			took, blocks = time.Since(start), max(blocks, blocked(redis)-before)
			if errors.Is(err, conversation.ErrUnavailable) && t.Context().Err() == nil {
				t.Logf("after %v: %v", took, err)
				continue
			}
			must(t, err)
			return used.Hours, took, blocks
		}
	}
	unpacked, before := sizeOf(t, s, owner), blocked(redis)
	countIn(t, s, owner, now-now%24+24, map[usage.Field]int64{1: 1}) // the first of tomorrow
	t.Logf("the first count of a day that packs four: Redis is blocked for %v", blocked(redis)-before)
	first, took, firstBlocks := read(now-year+1, now+1)
	t.Logf("as it was counted, and 32 days packed: %.1f MiB; read in %v, Redis is blocked for %v", unpacked, took, firstBlocks)
	for from := now - year + 1; from <= now; from += daysPackedByRead * 24 { // packs the other days
		_, _, _ = read(from, from+daysPackedByRead*24)
	}
	packed, least := sizeOf(t, s, owner), time.Hour
	for i := 0; i < 10 && least > firstBlocks/5; i++ { // a busy machine can delay a read
		counted.n.Store(0)
		hours, took, blocks := read(now-year+1, now+1)
		same(t, "round trips", counted.n.Load(), 1)
		if len(hours) != year || !reflect.DeepEqual(hours, first) {
			t.Fatalf("the %d packed hours differ from those that were not packed", len(hours))
		}
		t.Logf("packed: %.1f MiB, %.0f bytes an hour; read in %v, Redis is blocked for %v", packed, packed*(1<<20)/year, took, blocks)
		least = min(least, blocks)
	}
	if packed > 5 || least > firstBlocks/5 {
		t.Errorf("packed, a year takes %.1f MiB, and reading it blocks Redis for %v", packed, least)
	}
	start := time.Now()
	series, figures := usage.Series(first, now-year+1, now+1, usage.ByHour), usage.MetricsOf(first)
	t.Logf("made a series by the hour in %v", time.Since(start))
	if len(series) != year || figures.Messages.Total != 400*year {
		t.Errorf("a series of %d, %+v", len(series), figures)
	}
}

// sizeOf returns the memory of an owner's keys in Redis, in MiB.
func sizeOf(t *testing.T, s *Store, owner conversation.Owner) float64 {
	all := int64(0)
	for _, key := range keysOf(t, s, tagOfOwner(owner)) {
		takes, err := s.db.MemoryUsage(t.Context(), key, 0).Result()
		must(t, err)
		all += takes
	}
	return float64(all) / (1 << 20)
}

// TestMonthTokens_EqualsReport compares the result of month_tokens with the usage report, for a busy account. It calls
// month_tokens in different hours, and with and without packed days.
func TestMonthTokens_EqualsReport(t *testing.T) {
	s, owner, now := newStore(t), newOwner(), usage.HourOf(time.Now().UnixMilli())
	tag := tagOfOwner(owner)
	fillYear(t, s, tag, now)
	tokens := atClock(t, "month", "return {int(month_tokens(tonumber(ARGV[1]), tonumber(ARGV[2])))}", 0)
	check := func(what string, at usage.Hour) {
		t.Helper()
		first, next := usage.Month(at)
		args := []any{int64(first), int64(next), int64(at) * 3600}
		reply, err := s.send(t.Context(), tokens, []string{sessionKey(tag, "session_0000000000000000")}, nil, args)
		must(t, err)
		used, err := s.Usage(t.Context(), owner, first, at+1)
		must(t, err)
		want := usage.ReportOf(used.Hours, usage.Owned{}, usage.Limits{}).Tokens.Used
		if want == 0 {
			t.Error("the report has no tokens")
		}
		same(t, what, text(list(reply)[0]), strconv.FormatInt(want, 10))
	}
	check("the first call", now-2)
	check("the same hour", now-2)
	check("two hours later", now)
	for range 2 { // a year has more days than one call packs
		_, err := s.Usage(t.Context(), owner, now-62*24, now+1)
		must(t, err)
	}
	must(t, s.db.Del(t.Context(), monthKey(tag)).Err())
	check("packed days, after the stored sum has expired", now)
}
