package limit

// Reservation is what was taken from a window before the real cost was known. It belongs to the window that made it. The
// zero value reserves nothing, and settling it does nothing, whatever was used.
type Reservation struct {
	Second Second `json:"second"` // by the window's clock: the caller's, unless that was set back
	Tokens int    `json:"tokens"`
}

// Reserve takes n, or the whole limit if n exceeds it: a large request must not be impossible for ever. If that does not
// fit, it takes nothing; [Window.Wait] of min(n, limit) then tells how long to wait.
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

// Settle replaces the reservation by what was used. If less was used, the difference returns to the second of the
// reservation; if that second has left, all of it has left already. If more was used, the difference is charged to this
// second, whether it fits or not, and leaves a full minute later.
//
// It empties r, so settling r again does nothing. A copy of r could be settled again: whoever stores a reservation must
// end its turn only once, which the fencing token ensures.
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

// Release gives back a whole reservation, because what it was made for was refused after all.
func (w *Window) Release(now Second, r *Reservation) { w.Settle(now, r, 0) }

// capped returns how much to reserve for n (at least 1) under a limit. It is never 0, so that a limit of 0 admits nothing.
func capped(n, limit int) int { return max(1, min(n, bounded(limit))) }
