package limit

// Reservation is what was taken from a window before it was known how much is needed. It belongs to the window that
// gave it. The zero value reserves nothing; settling it does nothing, whatever was used.
type Reservation struct {
	Second Second `json:"second"` // by the window's own clock, which is the caller's unless that was set back
	Tokens int    `json:"tokens"`
}

// Reserve takes n, or the whole limit if n is over it, so that one large request is not impossible for ever; all of
// that or, if it does not fit, nothing. How long to wait then, [Window.Wait] says for min(n, limit).
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

// Settle replaces what was reserved by what was used (design section 6). Less: the difference is given back to the
// second of the reservation, if that still counts; if it does not, all of it has left already. More: the difference
// is charged now, when it is known, whether it fits or not, and so is paid back by waiting the full minute.
//
// It empties r, so that settling it again does nothing. A copy of r can be settled again: whoever stores reservations
// must see that a turn ends once (the fence does).
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

// Release gives a reservation back that was not used at all: what it was made for has been refused after all.
func (w *Window) Release(now Second, r *Reservation) { w.Settle(now, r, 0) }

// capped is how much is reserved for n, of 1 or more, under a limit; never nothing, so that a limit of 0 admits
// nothing.
func capped(n, limit int) int { return max(1, min(n, bounded(limit))) }
