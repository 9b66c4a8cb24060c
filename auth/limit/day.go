package limit

// TestKeyRequestsPerDay is the number of requests that all test keys of an account together may make in a UTC day. It is
// enough to develop a client, and too few to run a product.
const TestKeyRequestsPerDay = 100

const day Second = 24 * 60 * 60

// Day counts the requests of one UTC day. A store stores and restores the Day, so that a restart does not reset the count.
// The zero value is empty. A Day is not safe for concurrent use: even Used may change it.
//
// If the caller's clock goes back to the previous day, the Day keeps its number and its count. If the clock goes back
// further, the Day takes the number of the clock's day and keeps its count. So the count ends at the latest with the day
// after the clock's day.
type Day struct {
	Number int64 `json:"day"` // days since 1970-01-01
	Count  int   `json:"count"`
}

// Used returns the count of the day that contains now.
func (d *Day) Used(now Second) int {
	d.advance(now)
	return d.Count
}

// Take counts one request and returns true. If the day has reached the limit, Take only returns false.
func (d *Day) Take(now Second, limit int) bool {
	if d.Used(now) >= limit {
		return false
	}
	d.Count++
	return true
}

// Wait returns the number of seconds until one more request fits the limit; 0 if the request fits now.
func (d *Day) Wait(now Second, limit int) int {
	if d.Used(now) < limit {
		return 0
	}
	return int(d.Reset(now) - clamp(now))
}

// Reset returns the time at which the day ends.
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
