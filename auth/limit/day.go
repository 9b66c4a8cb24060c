package limit

// TestKeyRequests is how many requests a day (UTC) the test keys of an account may make (spec: Limits).
const TestKeyRequestsPerDay = 100

const day Second = 24 * 60 * 60

// Day counts within a day, UTC. It is a plain value: a store keeps it, and gives it back after a restart, which
// forgives nothing (design section 6). The zero value is empty. It is not for concurrent use; asking changes it too.
//
// A clock that goes back over midnight stays in the later day; one that is set back further takes the count with it.
// Either way the count is kept, and lasts no longer than the day after the clock's.
type Day struct {
	Number int64 `json:"day"` // days since 1970-01-01
	Count  int   `json:"count"`
}

// Used is what was counted on the day of that time.
func (d *Day) Used(now Second) int {
	d.advance(now)
	return d.Count
}

// Take counts one if there is room for it, and reports whether there was.
func (d *Day) Take(now Second, limit int) bool {
	if d.Used(now) >= limit {
		return false
	}
	d.Count++
	return true
}

// Wait is for how many whole seconds one more does not fit; 0 if it does.
func (d *Day) Wait(now Second, limit int) int {
	if d.Used(now) < limit {
		return 0
	}
	return int(d.Reset(now) - clamp(now))
}

// Reset is when the day ends.
func (d *Day) Reset(now Second) Second {
	d.advance(now)
	return Second(d.Number+1) * day
}

func (d *Day) advance(now Second) {
	today := int64(clamp(now) / day)
	switch {
	case today > d.Number:
		*d = Day{Number: today}
	case today < d.Number-1:
		d.Number = today
	}
}

// giveBack takes one off, if that day is still the one that counts.
func (d *Day) giveBack(number int64) {
	if d.Number == number && d.Count > 0 {
		d.Count--
	}
}
