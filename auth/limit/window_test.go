package limit

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestWindow_Size_264Bytes(t *testing.T) {
	equal(t, "the size of a Window", unsafe.Sizeof(Window{}), 264)
	equal(t, "the size of Counters", unsafe.Sizeof(Counters{}), 544)
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
			equal(t, "the total", w.Used(now), used)
			equal(t, "the remaining amount", w.Remaining(now, limit), limit-used)
			equal(t, "the reset", w.Reset(now), l.reset(now))
			wait, possible := w.Wait(now, n, limit)
			equal(t, "the amount can fit", possible, n <= limit)
			if possible {
				equal(t, "the wait", wait, l.wait(now, n, limit))
			}
			took := w.Take(now, n, limit)
			equal(t, "Take accepts the amount", took, used+n <= limit)
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
				t.Fatalf("the window admitted %d in the 60 s before %d ms, with a limit of %d", sum, last.ms, limit)
			}
		}
	})
}

func TestWindow_ClockGoesBack_NoCountLeavesEarly(t *testing.T) {
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
				t.Fatalf("the total was %d, but is %d after the clock went back by %d s", before, w.Used(now), -step)
			}
			n := rapid.IntRange(1, limit).Draw(t, "n")
			at := l.tick(now)
			equal(t, "the total", w.Used(now), l.used(at))
			equal(t, "the reset", w.Reset(now), l.reset(now))
			wait, _ := w.Wait(now, n, limit)
			equal(t, "the wait", wait, l.wait(now, n, limit))
			if wait > 121 {
				t.Fatalf("the wait is %d s, want at most 121 s", wait)
			}
			if took := w.Take(now, n, limit); took {
				equal(t, "the amount that Take accepts fits", l.used(at)+n <= limit, true)
				l.add(n)
			} else {
				equal(t, "the amount that Take refuses fits", l.used(at)+n <= limit, false)
			}
		}
	})
}

func TestWindow_CallersOutOfOrder_LimitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 5
		var w Window
		var admitted []Second // by the highest clock so far
		highest := noon
		w.Used(highest)
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			now := highest + Second(rapid.IntRange(-60, 4).Draw(t, "apart"))
			highest = max(highest, now)
			if w.Take(now, 1, limit) {
				admitted = append(admitted, highest)
			}
		}
		for i, s := range admitted {
			if i >= limit && s-admitted[i-limit] <= 60 {
				t.Fatalf("the window admitted more than %d from second %d to second %d", limit, admitted[i-limit], s)
			}
		}
	})
}

func TestWindow_NewMinuteBegins_LimitHolds(t *testing.T) {
	var w Window
	at := noon + 59
	for range 300 {
		equal(t, "Take at the end of a minute", w.Take(at, 1, 300), true)
	}
	for ; at < noon+120; at++ {
		equal(t, "Take within 60 s", w.Take(at, 1, 300), false)
		wait, _ := w.Wait(at, 1, 300)
		equal(t, "the wait", Second(wait), noon+120-at)
		equal(t, "the reset", w.Reset(at), noon+120)
	}
	equal(t, "Take of the whole limit after 61 s", w.Take(at, 300, 300), true)
	equal(t, "Take of one more", w.Take(at, 1, 300), false)
}

func TestTake_AmountTooLarge_CountsNothing(t *testing.T) {
	var w Window
	w.Take(noon, 7, 10)
	equal(t, "Take of 4 with 3 remaining", w.Take(noon, 4, 10), false)
	equal(t, "the total", w.Used(noon), 7)
	equal(t, "Take of 3 with 3 remaining", w.Take(noon, 3, 10), true)
	equal(t, "Take of 0 with 0 remaining", w.Take(noon, 0, 10), true)
	equal(t, "Take of a negative amount", w.Take(noon, -5, 10), true)
	equal(t, "the total", w.Used(noon), 10)
	_, possible := w.Wait(noon, 11, 10)
	equal(t, "11 can fit a limit of 10", possible, false)
	wait, possible := w.Wait(noon, -1, 10)
	equal(t, "the wait for a negative amount", wait, 0)
	equal(t, "a negative amount can fit", possible, true)
}

func TestWindow_UnusedForAYear_Empty(t *testing.T) {
	var w Window
	for s := range Second(61) {
		w.Take(noon+s, 1, 1_000)
	}
	equal(t, "the total of 61 seconds", w.Used(noon+60), 61)
	equal(t, "the total a second later", w.Used(noon+61), 60)
	equal(t, "the total a year later", w.Used(noon+365*day), 0)
	equal(t, "the reset a year later", w.Reset(noon+365*day), noon+365*day)
	equal(t, "the buckets a year later", w.counts, [span]uint32{})
}

func TestWindow_LimitChanges_NewLimitAppliesAtOnce(t *testing.T) {
	var w Window
	equal(t, "Take with a limit of 1,000", w.Take(noon, 1_000, 1_000), true)
	equal(t, "the remaining amount with a limit of 60", w.Remaining(noon, 60), 0)
	equal(t, "Take with a limit of 60", w.Take(noon+60, 1, 60), false)
	wait, _ := w.Wait(noon+60, 1, 60)
	equal(t, "the wait with a limit of 60", wait, 1)
	equal(t, "Take with a limit of 1,001", w.Take(noon, 1, 1_001), true)
	equal(t, "Take with a limit of 0", w.Take(noon+200, 1, 0), false)
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
				t.Fatalf("Take of %d raised the total to %d, with a limit of %d", n, w.Used(now), limit)
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
