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
				w.Settle(now, &h.reservation, used) // must do nothing
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
				equal(t, "reserved", ok, fits)
				if ok {
					equal(t, "the reservation", r, Reservation{at, min(n, limit)})
					open = append(open, held{r, l.add(r.Tokens)})
				} else {
					equal(t, "the reservation refused", r, Reservation{})
				}
			}
			equal(t, "used", w.Used(now), l.used(at))
			equal(t, "remaining", w.Remaining(now, limit), max(0, limit-l.used(at)))
			equal(t, "reset", w.Reset(now), l.reset(now))
			wait, _ := w.Wait(now, 1, limit)
			equal(t, "wait", wait, l.wait(now, 1, limit))
		}
	})
}

func TestSettle_UnusedTokensReturned(t *testing.T) {
	for _, c := range []struct {
		after             Second
		used, atOnce, end int // end: the amount that still counts 61 s after the reservation
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
		equal(t, "the reservation", r, Reservation{})
		equal(t, "used", w.Used(noon+c.after), c.atOnce)
		if c.after <= 61 {
			equal(t, "used, once the reservation's second has left", w.Used(noon+61), c.end)
		}
		equal(t, "used, a minute after settling", w.Used(noon+c.after+61), 0)
	}
}

func TestReserve_OverLimit_TakesWholeLimit(t *testing.T) {
	var w Window
	r, ok := w.Reserve(noon, 30_000, 10_000)
	equal(t, "admitted", ok, true)
	equal(t, "reserved", r.Tokens, 10_000)
	_, ok = w.Reserve(noon, 1, 10_000)
	equal(t, "another", ok, false)
	_, ok = w.Reserve(noon+61, 30_000, 10_000)
	equal(t, "another, a minute later", ok, true)
}

func TestSettle_Overshoot_LaterRequestsWait(t *testing.T) {
	var w Window
	r, _ := w.Reserve(noon, 2_000, 10_000)
	w.Settle(noon+20, &r, 50_000)
	equal(t, "used", w.Used(noon+20), 50_000)
	for at := noon + 20; at < noon+81; at++ {
		if _, ok := w.Reserve(at, 1, 10_000); ok {
			t.Fatalf("a token was reserved %d s after the overshoot", at-noon-20)
		}
		wait, possible := w.Wait(at, 10_000, 10_000)
		equal(t, "possible", possible, true)
		equal(t, "the wait", Second(wait), noon+81-at)
	}
	_, ok := w.Reserve(noon+81, 10_000, 10_000)
	equal(t, "the whole limit, once the overshoot has left", ok, true)
}

func TestReserve_ZeroAmountOrLimit_TakesNothing(t *testing.T) {
	var w Window
	for _, n := range []int{0, -1} {
		r, ok := w.Reserve(noon, n, 10)
		equal(t, "admitted", ok, true)
		w.Settle(noon, &r, 1_000)
		equal(t, "used", w.Used(noon), 0)
	}
	_, ok := w.Reserve(noon, 5, 0)
	equal(t, "with a limit of 0", ok, false)
}

func TestRelease_Twice_GivesBackOnce(t *testing.T) {
	var w Window
	w.Take(noon, 3, 10)
	r, _ := w.Reserve(noon, 7, 10)
	w.Release(noon+60, &r)
	equal(t, "used", w.Used(noon+60), 3)
	w.Release(noon+60, &r)
	equal(t, "used, released twice", w.Used(noon+60), 3)
}

// The clock is set back and reaches the second of the reservation again. Settling must not change what was counted there
// the second time.
func TestSettle_ClockSetBack_OtherSecondUntouched(t *testing.T) {
	var w Window
	r, _ := w.Reserve(noon, 10, 10)
	w.Used(noon - 100)
	equal(t, "taken in the same second by the caller's clock", w.Take(noon, 10, 10), true)
	w.Settle(noon, &r, 0)
	equal(t, "used", w.Used(noon), 10)
}

func TestSettle_OthersReservationsUntouched(t *testing.T) {
	for _, c := range []struct {
		reservation Reservation
		used, left  int
	}{
		{Reservation{noon, 10}, -5, 20},         // a provider may report a negative number
		{Reservation{noon + 1, 10}, 0, 30},      // in the future, so from another window
		{Reservation{noon + 1 - 61, 10}, 0, 30}, // in a second that has left the window
		{Reservation{-61, 10}, 0, 30},
	} {
		var w Window
		w.Take(noon, 30, 100)
		w.Settle(noon, &c.reservation, c.used)
		equal(t, "used", w.Used(noon), c.left)
	}
}
