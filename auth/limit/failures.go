package limit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// FailuresPerMinute is how many failed authentications a minute an address may make: enough for a team behind one NAT whose
// deployment has a wrong key, far too few to guess 160 bits.
const FailuresPerMinute = 30

const (
	failureSets = 512 // each of failureWays addresses
	failureWays = 8
)

// Failures counts failed authentications by address; an IPv6 network /64 counts as one address, since its owner has all of
// it. It is not safe for concurrent use.
//
// Its memory is bounded: 4,096 addresses, 1.1 MiB without pointers, of which the system provides only the pages touched. It
// is a set-associative table: an address hashes to a set of eight slots, with a key that nobody outside knows. If all eight
// hold other addresses, it evicts the one with the fewest failures (of those, the one that resets first) and inherits the
// count. So rotating addresses neither grows the table nor escapes it: no slot admits more than 30 a minute, whoever
// uses it. The price: while thousands of addresses fail in the same minute, a new address that fails is refused sooner,
// and an evicted one that returns may have lost its count. A valid key is never refused, because callers ask only
// after a key has failed.
type Failures struct {
	seed maphash.Seed
	sets [][failureWays]failing
}

// failing is a slot: an address and its failures. It is free if the address has no family.
type failing struct {
	network network
	window  Window
}

// network identifies an address.
type network struct {
	bits   uint64 // the first 64 bits of an IPv6 address
	family uint8  // 4 or 6; 1 for no address (a Unix socket); 0 for a free slot
}

// NewFailures returns an empty table.
func NewFailures() *Failures {
	return &Failures{seed: maphash.MakeSeed(), sets: make([][failureWays]failing, failureSets)}
}

// Record counts a failed authentication from an address. If the decision admits it, respond with 401, otherwise with 429;
// both carry its figures. A refused one is not counted.
func (f *Failures) Record(now Second, from netip.Addr) Decision {
	w := f.window(now, networkOf(from))
	state := w.status(now, ByFailures, 1, FailuresPerMinute)
	if w.Take(now, 1, FailuresPerMinute) {
		state = w.status(now, ByFailures, 0, FailuresPerMinute)
	}
	return Decide(state)
}

func (f *Failures) window(now Second, n network) *Window {
	return windowIn(&f.sets[maphash.Comparable(f.seed, n)%failureSets], now, n)
}

// windowIn returns the window of network n in its set: its own slot, or the emptiest one, which it takes over.
func windowIn(set *[failureWays]failing, now Second, n network) *Window {
	for i := range set {
		if set[i].network == n {
			return &set[i].window
		}
	}
	chosen := &set[0]
	for i := range set {
		if other := &set[i]; emptier(now, &other.window, &chosen.window) {
			chosen = other
		}
	}
	chosen.network = n
	return &chosen.window
}

// emptier reports whether a counts less than b or, if they count alike, begins to empty sooner.
func emptier(now Second, a, b *Window) bool {
	if x, y := a.Used(now), b.Used(now); x != y {
		return x < y
	}
	return a.Reset(now) < b.Reset(now)
}

func networkOf(a netip.Addr) network {
	a = a.Unmap()
	switch {
	case a.Is4():
		b := a.As4()
		return network{uint64(binary.BigEndian.Uint32(b[:])), 4}
	case a.Is6():
		b := a.As16()
		return network{binary.BigEndian.Uint64(b[:8]), 6}
	}
	return network{family: 1}
}

// Check returns the figures of an address and counts nothing: for responses that need no key.
func (f *Failures) Check(now Second, from netip.Addr) Decision {
	return Decide(f.window(now, networkOf(from)).status(now, ByFailures, 0, FailuresPerMinute))
}
