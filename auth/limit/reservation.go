package limit

// Reservation is an amount that a window has counted before the actual cost is known. Only the same window can settle the
// reservation. The zero value reserves nothing, and Settle has no effect on it.
type Reservation struct {
	Second Second `json:"second"` // by the window's clock, which may be ahead of the caller's clock
	Tokens int    `json:"tokens"`
}

// Reserve counts the amount n and returns its reservation. If n is greater than the limit, Reserve counts the whole limit:
// otherwise such a request could never run. If the amount does not fit, Reserve counts nothing, and ok is false. Use
// [Window.Wait] for min(n, limit) to get the wait.
func (w *Window) Reserve(now Second, n, limit int) (r Reservation, ok bool) {
	if n <= 0 {
		return Reservation{}, true
	}
	n = capped(n, limit)
	if !w.Take(now, n, limit) {
		return Reservation{}, false
	}
	return Reservation{w.newest, n}, true
}

// Settle replaces the reserved amount by the amount used. If used is smaller, Settle subtracts the difference from the
// second of the reservation, unless that second has left the window. If used is greater, Settle adds the difference in the
// current second, even if it does not fit.
//
// Settle empties r, so a second Settle of r has no effect. But a second Settle of a copy would count twice. A store copies
// reservations, so it must end each turn only once. The fencing token of the session ensures this.
func (w *Window) Settle(now Second, r *Reservation, used int) {
	w.advance(now)
	reserved := *r
	*r = Reservation{}
	switch {
	case reserved.Tokens <= 0:
	case used > reserved.Tokens:
		w.add(used - reserved.Tokens)
	default:
		w.giveBack(reserved.Second, reserved.Tokens-max(0, used))
	}
}

// Release subtracts the whole reserved amount, for a request that has had no effect.
func (w *Window) Release(now Second, r *Reservation) { w.Settle(now, r, 0) }

// capped returns the amount that Reserve counts for n: the smaller of n and limit, but at least 1. So a limit of 0 admits
// nothing.
func capped(n, limit int) int { return max(1, min(n, bounded(limit))) }
