package limit

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestWindow_Size_264Bytes(t *testing.T) {
	equal(t, "a window", unsafe.Sizeof(Window{}), 264)
	equal(t, "counters", unsafe.Sizeof(Counters{}), 544)
}

func TestWindow_MatchesReferenceLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.IntRange(1, 6), rapid.IntRange(1, 1_000)).Draw(t, "limit")
		var w Window
		var l ledger
		type arrival struct {
			ms int64
			n  int
		}
		var admitted []arrival
		ms := rapid.SampledFrom([]int64{0, 30_000, int64(noon) * 1000, int64(noon)*1000 - 500}).Draw(t, "start")
		for range rapid.IntRange(1, 120).Draw(t, "arrivals") {
			ms += int64(gaps().Draw(t, "gap"))
			n := rapid.OneOf(rapid.Just(1), rapid.IntRange(0, limit+1)).Draw(t, "n")
			now := SecondOf(time.UnixMilli(ms))
			l.tick(now)
			used := l.used(now)
			equal(t, "used", w.Used(now), used)
			equal(t, "remaining", w.Remaining(now, limit), limit-used)
			equal(t, "reset", w.Reset(now), l.reset(now))
			wait, possible := w.Wait(now, n, limit)
			equal(t, "possible", possible, n <= limit)
			if possible {
				equal(t, "wait", wait, l.wait(now, n, limit))
			}
			took := w.Take(now, n, limit)
			equal(t, "admitted", took, used+n <= limit)
			if took {
				l.add(n)
				admitted = append(admitted, arrival{ms, n})
			}
		}
		for i, last := range admitted {
			sum := 0
			for _, a := range admitted[:i+1] {
				if a.ms >= last.ms-60_000 {
					sum += a.n
				}
			}
			if sum > limit {
				t.Fatalf("%d in the 60 s to %d ms, with a limit of %d", sum, last.ms, limit)
			}
		}
	})
}

func TestWindow_ClockGoesBack_NothingFreed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 20
		var w Window
		var l ledger
		now := noon
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			before, step := w.Used(now), Second(steps().Draw(t, "step"))
			l.tick(now)
			now += step
			if step < 0 && w.Used(now) < before {
				t.Fatalf("used was %d, but %d after the clock went back by %d s", before, w.Used(now), -step)
			}
			n := rapid.IntRange(1, limit).Draw(t, "n")
			at := l.tick(now)
			equal(t, "used", w.Used(now), l.used(at))
			equal(t, "reset", w.Reset(now), l.reset(now))
			wait, _ := w.Wait(now, n, limit)
			equal(t, "wait", wait, l.wait(now, n, limit))
			if wait > 121 {
				t.Fatalf("a wait of %d s", wait)
			}
			if took := w.Take(now, n, limit); took {
				equal(t, "what was taken fits", l.used(at)+n <= limit, true)
				l.add(n)
			} else {
				equal(t, "what was refused does not fit", l.used(at)+n > limit, true)
			}
		}
	})
}

func TestWindow_CallersOutOfOrder_LimitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 5
		var w Window
		var stated []Second
		highest := noon
		w.Used(highest)
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now := highest + Second(rapid.IntRange(-60, 4).Draw(t, "apart"))
			highest = max(highest, now)
			if w.Take(now, 1, limit) {
				stated = append(stated, highest)
			}
		}
		for i, s := range stated {
			if i >= limit && s-stated[i-limit] <= 60 {
				t.Fatalf("more than %d admitted from second %d to %d", limit, stated[i-limit], s)
			}
		}
	})
}

func TestWindow_MinuteBoundary_NoDoubleBurst(t *testing.T) {
	var w Window
	at := noon + 59
	for range 300 {
		equal(t, "before the boundary", w.Take(at, 1, 300), true)
	}
	for ; at < noon+120; at++ {
		equal(t, "after the boundary", w.Take(at, 1, 300), false)
		wait, _ := w.Wait(at, 1, 300)
		equal(t, "the wait", Second(wait), noon+120-at)
		equal(t, "the reset", w.Reset(at), noon+120)
	}
	equal(t, "61 s later", w.Take(at, 300, 300), true)
	equal(t, "and one more", w.Take(at, 1, 300), false)
}

func TestTake_AllOrNothing(t *testing.T) {
	var w Window
	w.Take(noon, 7, 10)
	equal(t, "4 with 3 remaining", w.Take(noon, 4, 10), false)
	equal(t, "used", w.Used(noon), 7)
	equal(t, "3 with 3 remaining", w.Take(noon, 3, 10), true)
	equal(t, "0 with 0 remaining", w.Take(noon, 0, 10), true)
	equal(t, "a negative amount", w.Take(noon, -5, 10), true)
	equal(t, "used", w.Used(noon), 10)
	_, possible := w.Wait(noon, 11, 10)
	equal(t, "11 ever fits a limit of 10", possible, false)
	wait, possible := w.Wait(noon, -1, 10)
	equal(t, "the wait for a negative amount", wait, 0)
	equal(t, "a negative amount ever fits", possible, true)
}

func TestWindow_LongIdle_Empty(t *testing.T) {
	var w Window
	for s := range Second(61) {
		w.Take(noon+s, 1, 1_000)
	}
	equal(t, "used", w.Used(noon+60), 61)
	equal(t, "after one more second", w.Used(noon+61), 60)
	equal(t, "a year later", w.Used(noon+365*day), 0)
	equal(t, "the reset", w.Reset(noon+365*day), noon+365*day)
	equal(t, "the buckets", w.counts, [span]uint32{})
}

func TestWindow_LimitChanges_AppliesAtOnce(t *testing.T) {
	var w Window
	equal(t, "enterprise", w.Take(noon, 1_000, 1_000), true)
	equal(t, "remaining as free", w.Remaining(noon, 60), 0)
	equal(t, "as free", w.Take(noon+60, 1, 60), false)
	wait, _ := w.Wait(noon+60, 1, 60)
	equal(t, "the wait", wait, 1)
	equal(t, "as enterprise, with more", w.Take(noon, 1, 1_001), true)
	equal(t, "a limit of 0", w.Take(noon+200, 1, 0), false)
}

func TestWindow_ExtremeNumbers_TotalIsSumOfBuckets(t *testing.T) {
	extremes := []int{math.MinInt, -1, 0, 1, MaxLimit, MaxLimit + 1, maxTotal, math.MaxInt}
	seconds := []Second{math.MinInt64, -1, 0, 1, 60, 61, noon, maxSecond, math.MaxInt64}
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		for range 30 {
			now := rapid.SampledFrom(seconds).Draw(t, "now")
			n := rapid.SampledFrom(extremes).Draw(t, "n")
			limit := rapid.SampledFrom(extremes).Draw(t, "limit")
			if before := w.Used(now); w.Take(now, n, limit) && w.Used(now) > max(before, limit) {
				t.Fatalf("took %d to %d of %d", n, w.Used(now), limit)
			}
			if rapid.Bool().Draw(t, "charge") {
				w.Charge(now, n)
			}
			r := Reservation{Second: rapid.SampledFrom(seconds).Draw(t, "second"), Tokens: n}
			w.Settle(now, &r, limit)
			w.Wait(now, n, limit)
			w.Reset(now)
			sum := 0
			for _, c := range w.counts {
				sum += int(c)
			}
			equal(t, "the total", int(w.total), sum)
		}
	})
}
