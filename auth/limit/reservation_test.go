package limit

import (
	"testing"

	"pgregory.net/rapid"
)

func TestReserve_MatchesReferenceLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(1, 10_000)).Draw(t, "limit")
		var w Window
		var l ledger
		type held struct {
			reservation Reservation
			entry       int
		}
		var open []held
		step := rapid.SampledFrom([]*rapid.Generator[int]{rapid.IntRange(0, 20), steps()}).Draw(t, "clock")
		now := noon
		for range rapid.IntRange(1, 150).Draw(t, "operations") {
			now += Second(step.Draw(t, "step"))
			at := l.tick(now)
			if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				h := open[i]
				open = append(open[:i], open[i+1:]...)
				used := rapid.IntRange(0, 2*limit).Draw(t, "used")
				w.Settle(now, &h.reservation, used)
				w.Settle(now, &h.reservation, used) // must have no effect
				reserved := &l.entries[h.entry].n
				if used > *reserved {
					l.add(used - *reserved)
				} else {
					*reserved = used // no effect if the entry has left the window
				}
			} else {
				n := rapid.IntRange(1, 2*limit).Draw(t, "n")
				fits := l.used(at)+min(n, limit) <= limit
				r, ok := w.Reserve(now, n, limit)
				equal(t, "the amount fits", ok, fits)
				if ok {
					equal(t, "the reservation", r, Reservation{at, min(n, limit)})
					open = append(open, held{r, l.add(r.Tokens)})
				} else {
					equal(t, "the reservation of an amount that does not fit", r, Reservation{})
				}
			}
			equal(t, "the total", w.Used(now), l.used(at))
			equal(t, "the remaining amount", w.Remaining(now, limit), max(0, limit-l.used(at)))
			equal(t, "the reset", w.Reset(now), l.reset(now))
			wait, _ := w.Wait(now, 1, limit)
			equal(t, "the wait", wait, l.wait(now, 1, limit))
		}
	})
}

func TestSettle_ReplacesReservedAmountByUsage(t *testing.T) {
	for _, c := range []struct {
		after  Second // seconds from the reservation to Settle
		used   int    // the usage that Settle gets
		atOnce int    // the total just after Settle
		end    int    // the total 61 s after the reservation
	}{
		{0, 400, 400, 0},
		{30, 400, 400, 0},
		{60, 400, 400, 0},
		{60, 0, 0, 0},
		{60, -1, 0, 0},
		{60, 1_000, 1_000, 0},
		{61, 400, 0, 0},
		{500, 400, 0, 0},
		{0, 1_300, 1_300, 0},
		{30, 1_300, 1_300, 300},
		{60, 1_300, 1_300, 300},
		{61, 1_300, 300, 300},
		{500, 1_300, 300, 0},
	} {
		var w Window
		r, _ := w.Reserve(noon, 1_000, 5_000)
		w.Settle(noon+c.after, &r, c.used)
		equal(t, "the reservation after Settle", r, Reservation{})
		equal(t, "the total after Settle", w.Used(noon+c.after), c.atOnce)
		if c.after <= 61 {
			equal(t, "the total 61 s after the reservation", w.Used(noon+61), c.end)
		}
		equal(t, "the total 61 s after Settle", w.Used(noon+c.after+61), 0)
	}
}

func TestReserve_AmountOverLimit_ReservesWholeLimit(t *testing.T) {
	var w Window
	r, ok := w.Reserve(noon, 30_000, 10_000)
	equal(t, "the amount fits", ok, true)
	equal(t, "the reserved amount", r.Tokens, 10_000)
	_, ok = w.Reserve(noon, 1, 10_000)
	equal(t, "a second amount fits", ok, false)
	_, ok = w.Reserve(noon+61, 30_000, 10_000)
	equal(t, "a second amount fits 61 s later", ok, true)
}

func TestSettle_UsageOverLimit_LaterRequestsWait(t *testing.T) {
	var w Window
	r, _ := w.Reserve(noon, 2_000, 10_000)
	w.Settle(noon+20, &r, 50_000)
	equal(t, "the total", w.Used(noon+20), 50_000)
	for at := noon + 20; at < noon+81; at++ {
		if _, ok := w.Reserve(at, 1, 10_000); ok {
			t.Fatalf("Reserve accepted a token %d s after the usage that exceeded the limit", at-noon-20)
		}
		wait, possible := w.Wait(at, 10_000, 10_000)
		equal(t, "the amount can fit later", possible, true)
		equal(t, "the wait", Second(wait), noon+81-at)
	}
	_, ok := w.Reserve(noon+81, 10_000, 10_000)
	equal(t, "the whole limit fits 61 s after Settle", ok, true)
}

func TestReserve_ZeroAmountOrLimit_ReservesNothing(t *testing.T) {
	var w Window
	for _, n := range []int{0, -1} {
		r, ok := w.Reserve(noon, n, 10)
		equal(t, "an amount of 0 or less fits", ok, true)
		w.Settle(noon, &r, 1_000)
		equal(t, "the total after Settle", w.Used(noon), 0)
	}
	_, ok := w.Reserve(noon, 5, 0)
	equal(t, "an amount fits a limit of 0", ok, false)
}

func TestRelease_Twice_GivesBackOnce(t *testing.T) {
	var w Window
	w.Take(noon, 3, 10)
	r, _ := w.Reserve(noon, 7, 10)
	w.Release(noon+60, &r)
	equal(t, "the total after Release", w.Used(noon+60), 3)
	w.Release(noon+60, &r)
	equal(t, "the total after a second Release", w.Used(noon+60), 3)
}

// TestSettle_ClockSetBack_CountsAfterwardsStay sets the caller's clock back, and lets it reach the second of the
// reservation again. Settle must not subtract the amounts that were counted in this second after the clock was set
// back.
func TestSettle_ClockSetBack_CountsAfterwardsStay(t *testing.T) {
	var w Window
	r, _ := w.Reserve(noon, 10, 10)
	w.Used(noon - 100)
	equal(t, "an amount fits in the same second of the caller's clock", w.Take(noon, 10, 10), true)
	w.Settle(noon, &r, 0)
	equal(t, "the total after Settle", w.Used(noon), 10)
}

func TestSettle_SecondNotInWindow_OtherCountsStay(t *testing.T) {
	for _, c := range []struct {
		reservation Reservation
		used, left  int
	}{
		{Reservation{noon, 10}, -5, 20},         // in the window; a provider may report a negative usage
		{Reservation{noon + 1, 10}, 0, 30},      // in the future: the reservation is from another window
		{Reservation{noon + 1 - 61, 10}, 0, 30}, // the second has left the window
		{Reservation{-61, 10}, 0, 30},
	} {
		var w Window
		w.Take(noon, 30, 100)
		w.Settle(noon, &c.reservation, c.used)
		equal(t, "the total after Settle", w.Used(noon), c.left)
	}
}
