package limit

// TestKeyRequestsPerDay is the quota of all test keys of an account together, a UTC day: enough to build against, too few
// to run a product on.
const TestKeyRequestsPerDay = 100

const day Second = 24 * 60 * 60

// Day counts within one UTC day. It is a plain value: a store persists it and restores it, so that a restart resets
// nothing. The zero value is empty. It is not safe for concurrent use; even reading moves its clock.
//
// If the clock goes back over midnight, the later day goes on. If it is set back further, the count moves to the earlier
// day. The count is kept in both cases, at longest until the end of the day after the clock's.
type Day struct {
	Number int64 `json:"day"` // days since 1970-01-01
	Count  int   `json:"count"`
}

// Used returns the count of the day of now.
func (d *Day) Used(now Second) int {
	d.advance(now)
	return d.Count
}

// Take counts one request if the limit has room for it, and reports whether it did.
func (d *Day) Take(now Second, limit int) bool {
	if d.Used(now) >= limit {
		return false
	}
	d.Count++
	return true
}

// Wait returns the whole seconds until one more request fits; 0 if it fits now.
func (d *Day) Wait(now Second, limit int) int {
	if d.Used(now) < limit {
		return 0
	}
	return int(d.Reset(now) - clamp(now))
}

// Reset returns when the day ends.
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

// giveBack takes one off the count, unless another day has begun.
func (d *Day) giveBack(number int64) {
	if d.Number == number && d.Count > 0 {
		d.Count--
	}
}
