package limit

// TestKeyRequestsPerDay is the quota that all test keys of an account share in a UTC day: enough to develop against, too
// few to run a product.
const TestKeyRequestsPerDay = 100

const day Second = 24 * 60 * 60

// Day counts the requests of one UTC day. It is a plain value: a store persists and restores it, so that a restart does
// not reset the count. The zero value is empty. It is not safe for concurrent use: even reading moves its clock.
//
// If the clock goes back across one midnight, the later day stays the current one. If the clock goes back further, the
// count moves to the clock's day. In both cases the count is kept, at most until the end of the day after the clock's.
type Day struct {
	Number int64 `json:"day"` // days since 1970-01-01
	Count  int   `json:"count"`
}

// Used returns the count of the day that contains now.
func (d *Day) Used(now Second) int {
	d.advance(now)
	return d.Count
}

// Take counts one request if it fits the limit, and reports whether it did.
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

// Reset returns the end of the day.
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

// giveBack takes one request off the count, unless the current day is another one.
func (d *Day) giveBack(number int64) {
	if d.Number == number && d.Count > 0 {
		d.Count--
	}
}
