package limit

// Reservation is an amount that was taken from a window before the real cost was known. Only that window can settle it.
// The zero value reserves nothing, and settling it does nothing.
type Reservation struct {
	Second Second `json:"second"` // by the window's clock, which is ahead of the caller's if that was set back
	Tokens int    `json:"tokens"`
}

// Reserve takes n, or the whole limit if n exceeds the limit: otherwise a large request could never run. If the amount
// does not fit, Reserve takes nothing, and [Window.Wait] for min(n, limit) returns the wait.
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

// Settle replaces the reservation by the actual usage. If less was used, the difference returns to the second of the
// reservation, unless that second has left the window. If more was used, the difference counts in the current second,
// whether it fits or not, and leaves 61 seconds later.
//
// Settle empties r, so settling r again does nothing. A copy of r could be settled again, so a store that keeps
// reservations must end each turn only once. The fencing token ensures that.
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

// Release returns the whole reservation of a request that has no effect after all.
func (w *Window) Release(now Second, r *Reservation) { w.Settle(now, r, 0) }

// capped returns the amount to reserve for n (at least 1) under a limit. The amount is never 0, so a limit of 0 admits
// nothing.
func capped(n, limit int) int { return max(1, min(n, bounded(limit))) }
