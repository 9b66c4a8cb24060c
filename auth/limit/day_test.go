package limit

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDay_AdmitsHundredRequestsUntilMidnightUTC(t *testing.T) {
	last := SecondOf(time.Date(2026, 2, 28, 23, 59, 59, 999_000_000, time.FixedZone("", 0)))
	var d Day
	for range 100 {
		equal(t, "Take, 100 times", d.Take(last, 100), true)
	}
	equal(t, "Take, once more", d.Take(last, 100), false)
	equal(t, "the wait", d.Wait(last, 100), 1)
	equal(t, "the reset", d.Reset(last), SecondOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)))
	equal(t, "the count on the next day", d.Used(last+1), 0)
	equal(t, "Take on the next day", d.Take(last+1, 100), true)
	equal(t, "the wait on the next day", d.Wait(last+1, 100), 0)
	equal(t, "the reset on the next day", d.Reset(last+1), last+1+day)
}

func TestDay_StoredAndRestored_KeepsCount(t *testing.T) {
	c := Counters{}
	for range 100 {
		c.Admit(noon, Request{Limits: limitsOf(Pro), Test: true})
	}
	kept, err := json.Marshal(c.Day)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "the stored day", string(kept), `{"day":20833,"count":100}`)
	restarted := Counters{}
	if err := json.Unmarshal(kept, &restarted.Day); err != nil {
		t.Fatal(err)
	}
	d := restarted.Admit(noon+61, Request{Limits: limitsOf(Pro), Test: true})
	equal(t, "the limit that refuses", d.Refused, ByDay)
}

func TestDay_ClockGoesBack_KeepsCount(t *testing.T) {
	midnight := noon - noon%day
	d := Day{}
	d.Take(midnight, 2)
	for _, now := range []Second{midnight - 1, midnight, midnight - day, midnight, midnight - 500*day, midnight - 499*day - 1} {
		equal(t, "the count", d.Used(now), 1)
	}
	equal(t, "Take below the limit", d.Take(midnight-500*day, 2), true)
	equal(t, "Take at the limit", d.Take(midnight-500*day, 2), false)
	equal(t, "the wait", d.Wait(midnight-500*day, 2), int(day))
	equal(t, "the count on the next day", d.Used(midnight-499*day), 0)
}

func TestDay_ClockGoesBack_CountEndsNextDay(t *testing.T) {
	midnight := noon - noon%day
	for back := range Second(5) {
		d := Day{Number: int64(midnight / day), Count: 7}
		now := midnight - back*day
		equal(t, "the count", d.Used(now), 7)
		equal(t, "the count two days later", d.Used(now+2*day), 0)
		if wait := d.Reset(now) - now; wait > 2*day {
			t.Fatalf("after the clock went back by %d days, the day ends in %d s, want at most two days", back, wait)
		}
	}
	d := Day{Number: int64(midnight / day), Count: 7}
	d.Used(midnight - 2*day)
	equal(t, "the count on the day after a clock that went back by two days", d.Used(midnight-day), 0)
}
