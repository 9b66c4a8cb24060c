package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/redis/redistest"
)

// countScript is the script of countIn. Its arguments are a time in milliseconds, and then counts: field, count, field, count, …
var countScript = newTestScript("test", "count_usage(tonumber(ARGV[1]), {unpack(ARGV, 2)})", 0)

// countIn adds counts of usage to an hour. It uses count_usage, the Lua function of the scripts.
func countIn(t rapid.TB, s *Store, owner conversation.Owner, hour usage.Hour, counts map[usage.Field]int64) {
	t.Helper()
	args := []any{hour.Milliseconds()}
	for field, n := range counts {
		args = append(args, int(field), n)
	}
	if _, err := s.send(context.Background(), countScript, []string{expiryKey(tagOfOwner(owner))}, nil, args); err != nil {
		t.Fatal(err)
	}
}

// keysOf returns the names of all keys with a tag, sorted.
func keysOf(t rapid.TB, s *Store, tag string) []string {
	t.Helper()
	keys, err := s.db.Keys(context.Background(), tag+":*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// tally counts usage of an owner in Redis and in want, and compares the two.
type tally struct {
	t     rapid.TB
	redis *redistest.Server // the test sets its clock
	s     *Store
	owner conversation.Owner
	want  map[usage.Hour]map[usage.Field]int64 // the counts that Usage must return
}

func newTally(t rapid.TB, redis *redistest.Server, s *Store) *tally {
	return &tally{t: t, redis: redis, s: s, owner: newOwner(), want: make(map[usage.Hour]map[usage.Field]int64)}
}

// hour returns the current hour by the server's clock.
func (c *tally) hour() usage.Hour { return usage.HourOf(c.redis.Now().UnixMilli()) }

// count adds counts to an hour, in Redis and in want.
func (c *tally) count(hour usage.Hour, counts map[usage.Field]int64) {
	c.t.Helper()
	if c.want[hour] == nil {
		c.want[hour] = make(map[usage.Field]int64)
	}
	for field, n := range counts {
		c.want[hour][field] += n
	}
	countIn(c.t, c.s, c.owner, hour, counts)
}

// check calls Usage for the hours from (inclusive) to (exclusive), and compares the counts with want.
func (c *tally) check(from, to usage.Hour) {
	c.t.Helper()
	used, err := c.s.Usage(context.Background(), c.owner, from, to)
	if err != nil {
		c.t.Fatal(err)
	}
	want, got := make(map[usage.Hour]map[usage.Field]int64), make(map[usage.Hour]map[usage.Field]int64)
	for hour, counts := range c.want {
		if hour >= max(from, used.Now-usage.RetentionHours) && hour < min(to, used.Now+2) {
			want[hour] = counts
		}
	}
	last := usage.Hour(0)
	for i := range used.Hours {
		h := &used.Hours[i]
		if h.Hour <= last {
			c.t.Errorf("the hours are not sorted: %d follows %d", h.Hour, last)
		}
		got[h.Hour], last = maps.Collect(h.Bucket.All()), h.Hour
	}
	if !maps.EqualFunc(got, want, maps.Equal) {
		c.t.Fatalf("from %d to %d the counts are %v, want %v", from, to, got, want)
	}
}

// kept returns the days of the owner that have a hash (kind "h") or packed counts (kind "p"). Days are relative to today:
// yesterday is -1.
func (c *tally) kept(kind string) []int {
	c.t.Helper()
	var days []int
	tag := tagOfOwner(c.owner)
	for _, key := range keysOf(c.t, c.s, tag) {
		if text, found := strings.CutPrefix(key, tag+":"+kind+":"); found {
			day := 0
			if _, err := fmt.Sscan(text, &day); err != nil {
				c.t.Fatal(err)
			}
			days = append(days, day-int(c.hour()/24))
		}
	}
	slices.Sort(days)
	return days
}

const oneDay = 24 * time.Hour

// noon sets the server's clock to 12:30 of the next day, so that no hour ends during a test.
func noon(redis *redistest.Server) {
	now := redis.Now().UTC()
	redis.Advance(now.Truncate(oneDay).Add(36*time.Hour + 30*time.Minute).Sub(now))
}

// pass moves the server's clock ahead by hours, or back if hours is negative. It removes the counts that have expired from want.
// It also asks Redis for their keys, so that Redis deletes the keys now. On a busy machine, Redis may delete them much later. If
// the clock was set back meanwhile, the counts would be valid again.
func (c *tally) pass(hours int) {
	c.t.Helper()
	c.redis.Advance(time.Duration(hours) * time.Hour)
	tag := tagOfOwner(c.owner)
	maps.DeleteFunc(c.want, func(hour usage.Hour, _ map[usage.Field]int64) bool {
		expired := hour/24*24+24+usage.RetentionHours <= c.hour()
		if day := fmt.Sprint(hour / 24); expired {
			if n, err := c.s.db.Exists(context.Background(), countsKey(tag, day), packedKey(tag, day)).Result(); err != nil || n != 0 {
				c.t.Fatalf("day %s has expired, and %d of its keys exist: %v", day, n, err)
			}
		}
		return expired
	})
}

// TestUsage_PackedOrNot_CountsUnchanged adds counts, reads counts and moves the clock, in random order. Usage must return the
// counts that were added.
func TestUsage_PackedOrNot_CountsUnchanged(t *testing.T) {
	t.Parallel()
	redis := redistest.SingleWithClock(t)
	s := open(t, redis.URL)
	field := rapid.OneOf(rapid.IntRange(1, 12), rapid.IntRange(32, 40), rapid.IntRange(195, 205))
	n := rapid.SampledFrom([]int64{1, 2, 127, 128, 300, 70_000, 1 << 33, 1<<53 - 1, 1 << 56})
	both := 0
	noon(redis)
	rapid.Check(t, func(rt *rapid.T) {
		c := newTally(rt, redis, s)
		rt.Repeat(map[string]func(*rapid.T){
			"count": func(rt *rapid.T) {
				back := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 24), rapid.IntRange(0, 24*40)).Draw(rt, "hours ago")
				counts := make(map[usage.Field]int64)
				for range rapid.IntRange(1, 8).Draw(rt, "counts") {
					counts[usage.Field(field.Draw(rt, "field"))] = n.Draw(rt, "n")
				}
				c.count(c.hour()-usage.Hour(back), counts)
			},
			"pass": func(rt *rapid.T) {
				c.pass(rapid.SampledFrom([]int{1, 5, 24, 24, 48, 120, 24 * 50, -24, -72, -24 * 20}).Draw(rt, "hours"))
			},
			"read": func(rt *rapid.T) {
				from := c.hour() - usage.Hour(rapid.IntRange(-2, usage.RetentionHours+50).Draw(rt, "from"))
				c.check(from, min(c.hour()+2, from+usage.Hour(rapid.IntRange(0, usage.RetentionHours).Draw(rt, "hours"))))
			},
		})
		for _, day := range c.kept("p") {
			if slices.Contains(c.kept("h"), day) {
				both++
			}
		}
		c.pass(72)
		c.check(0, c.hour()+2)
		c.check(0, c.hour()+2) // reads the packed days
	})
	t.Logf("%d days had a hash and packed counts", both)
}

func TestUsage_FirstCountOfDay_PacksEarlierDays(t *testing.T) {
	t.Parallel()
	redis := redistest.SingleWithClock(t)
	c := newTally(t, redis, open(t, redis.URL))
	noon(redis)
	one := map[usage.Field]int64{1: 1, 32: 200}
	for day := range 6 {
		c.count(c.hour(), one)
		c.count(c.hour()-24, one)
		hashes, packed := []int{-1, 0}, []int(nil)
		for ago := day; ago >= 1; ago-- {
			packed = append(packed, -1-ago)
		}
		same(t, "days in hashes", c.kept("h"), hashes)
		same(t, "packed days", c.kept("p"), packed)
		c.check(0, c.hour()+2)
		redis.Advance(oneDay)
	}
	c.count(c.hour()-4*24, one)
	same(t, "days in hashes after a late count", c.kept("h"), []int{-1})
	redis.Advance(-4 * oneDay)
	c.count(c.hour(), one)
	same(t, "days in hashes with the clock set back", c.kept("h"), []int{0, 3})
	same(t, "packed days with the clock set back", c.kept("p"), []int{-3, -2, -1, 0, 1, 2})
	c.check(0, c.hour()+2)
	redis.Advance(4 * oneDay)
	c.check(c.hour()-3*24, c.hour()+2) // all days except the day of the late count
	same(t, "days in hashes after the clock was corrected", c.kept("h"), []int{-4, -1})
	c.check(c.hour()-4*24, c.hour()-4*24+1)
	same(t, "days in hashes after reading the day of the late count", c.kept("h"), []int{-1})
	c.check(0, c.hour()+2)
}

// TestUsage_CountTooLargeForLua_DayNotPacked adds counts that Lua's doubles cannot represent exactly. A model can report any
// number of tokens, so such counts can occur.
func TestUsage_CountTooLargeForLua_DayNotPacked(t *testing.T) {
	t.Parallel()
	redis := redistest.SingleWithClock(t)
	c := newTally(t, redis, open(t, redis.URL))
	noon(redis)
	c.count(c.hour(), map[usage.Field]int64{6: 1 << 53})
	c.count(c.hour(), map[usage.Field]int64{6: 1})
	c.count(c.hour()-24, map[usage.Field]int64{6: 1<<53 - 1})
	redis.Advance(2 * oneDay)
	c.check(0, c.hour()+2)
	same(t, "days in hashes", c.kept("h"), []int{-2})
	same(t, "packed days", c.kept("p"), []int{-3})
	c.count(c.hour()-3*24, map[usage.Field]int64{6: 1, 7: 5})
	same(t, "days in hashes when a sum is no longer exact", c.kept("h"), []int{-3, -2})
	c.check(0, c.hour()+2)
}

func TestUsage_ManyUnpackedDays_PackedAFewAtATime(t *testing.T) {
	t.Parallel()
	redis := redistest.SingleWithClock(t)
	s := open(t, redis.URL)
	noon(redis)
	c := newTally(t, redis, s)
	for ago := range 50 { // writes the hashes directly, so that no script packs them
		hour := c.hour() - usage.Hour(24*ago)
		c.want[hour] = map[usage.Field]int64{8: int64(ago + 1)}
		key := fmt.Sprint(tagOfOwner(c.owner), ":h:", int64(hour/24))
		must(t, s.db.HSet(t.Context(), key, int(hour%24)*fieldsAnHour+8, ago+1).Err())
		must(t, s.db.ExpireAt(t.Context(), key, redis.Now().Add(300*oneDay)).Err())
	}
	all := c.hour() + 2
	for _, step := range []struct {
		what           string
		do             func()
		hashes, packed int
	}{
		{"a later count of a day", func() { c.count(c.hour()-1, map[usage.Field]int64{8: 1}) }, 50, 0},
		{"the first count of a day", func() { c.count(c.hour()+24, map[usage.Field]int64{8: 1}) }, 47, 4},
		{"a report of two days", func() { c.check(all-24*50, all-24*48) }, 45, 6},
		{"a report of all days", func() { c.check(0, all) }, 13, 38},
		{"a second report of all days", func() { c.check(0, all) }, 3, 48},
		{"a third report of all days", func() { c.check(0, all) }, 3, 48},
	} {
		step.do()
		same(t, "after "+step.what+": days in a hash, and packed", [2]int{len(c.kept("h")), len(c.kept("p"))}, [2]int{step.hashes, step.packed})
	}
}

func TestUsage_ExpiresAfter400Days(t *testing.T) {
	t.Parallel()
	redis := redistest.SingleWithClock(t)
	s := open(t, redis.URL)
	noon(redis)
	c := newTally(t, redis, s)
	one := map[usage.Field]int64{1: 1}
	counted := c.hour()
	c.count(counted, one)
	key := func(kind string) string { return fmt.Sprint(tagOfOwner(c.owner), ":", kind, ":", int64(counted/24)) }
	expires := s.db.PExpireTime(t.Context(), key("h")).Val()
	same(t, "days from the end of that day to the hash's expiry", (expires-time.Duration((counted/24+1)*24)*time.Hour).Hours()/24, 400)
	redis.Advance(2 * oneDay)
	c.check(0, c.hour()+2)
	same(t, "expiry of the packed counts", s.db.PExpireTime(t.Context(), key("p")).Val(), expires)
	redis.Advance(-2 * oneDay)
	c.count(counted, one)
	same(t, "expiry of the hash beside the packed counts", s.db.PExpireTime(t.Context(), key("h")).Val(), expires)
	redis.Advance(399 * oneDay)
	c.check(0, c.hour()+2)
	redis.Advance(time.UnixMilli(expires.Milliseconds()).Sub(redis.Now()) + time.Second)
	same(t, "the keys", keysOf(t, s, tagOfOwner(c.owner)), []string{})
	c.check(0, c.hour()+2)
}

// TestUsage_PackedByLua_ReadByGo packs lists and numbers in Lua, at the limits of MessagePack's sizes. Go must read the same
// numbers. addPacked must refuse malformed text.
func TestUsage_PackedByLua_ReadByGo(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, n := range []int64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<53 - 1, -1, -32, -33, -128, -129, -32769, -1 << 31, -1<<31 - 1} {
		for _, length := range []int{1, 7, 8, 40, 12_000} {
			packed := text(evaluate(t, s, `
				local list = {}
				for i = 1, tonumber(ARGV[2]) do list[2 * i - 1], list[2 * i] = 1, tonumber(ARGV[1]) end
				return cmsgpack.pack(list)`, n, length))
			r := packedReader{rest: packed}
			same(t, "the length of the list", r.listLength(), 2*length)
			for range length {
				if step, got := r.number(), r.number(); step != 1 || got != n {
					t.Fatalf("a step of 1 and %d are read as %d and %d", n, step, got)
				}
			}
			same(t, "the text after the list", r.rest, "")
		}
	}
	whole := text(evaluate(t, s, "return cmsgpack.pack({1, 2, 500, 70000, 11000, -5})"))
	for n := range len(whole) - 1 {
		if new(day).addPacked(whole[:n+1]) {
			t.Errorf("addPacked accepts the first %d bytes of %q", n+1, whole)
		}
	}
	if !new(day).addPacked(whole) || new(day).addPacked(whole+"\x00") {
		t.Errorf("addPacked refuses %q, or accepts the same text with one more byte", whole)
	}
	for _, bad := range []string{"return cmsgpack.pack({1}) .. '\\5'", "return cmsgpack.pack({20000, 1})", "return cmsgpack.pack({-1, 1, 'a', 1})"} {
		if packed := text(evaluate(t, s, bad)); new(day).addPacked(packed) {
			t.Errorf("addPacked accepts %q", packed)
		}
	}
}
