package limit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// FailuresPerMinute is the limit of failed authentications a minute from an address: enough for a team behind one NAT
// whose deployment has a wrong key, far too few to guess 160 bits.
const FailuresPerMinute = 30

const (
	failureSets = 512 // sets of failureWays slots
	failureWays = 8
)

// Failures counts failed authentications by address. An IPv6 network /64 counts as one address, because one customer
// usually has all addresses in it. It is not safe for concurrent use.
//
// Its memory is bounded: 4,096 addresses in 1.1 MiB without pointers. The table is set-associative: a hash with a random,
// secret seed maps an address to a set of eight slots. If other addresses hold all eight, the new address evicts the one
// with the fewest failures (among equals, the one that resets first) and inherits its count. So an attacker who rotates
// addresses neither grows the table nor evades it: no slot admits more than 30 failures a minute, for all its addresses
// together.
//
// The price: while thousands of addresses fail in the same minute, a new address is refused sooner, and an evicted
// address that returns may have lost its count. A valid key is never refused, because callers ask only after a key has
// failed.
type Failures struct {
	seed maphash.Seed
	sets [][failureWays]failing
}

// failing is a slot: an address and its failures. The slot is free if network.family is 0.
type failing struct {
	network network
	window  Window
}

// network identifies an address, or the /64 of an IPv6 address.
type network struct {
	bits   uint64 // the IPv4 address, or the first 64 bits of the IPv6 address
	family uint8  // 4 or 6; 1 for a client without an address (Unix socket); 0 for a free slot
}

// NewFailures returns an empty table.
func NewFailures() *Failures {
	return &Failures{seed: maphash.MakeSeed(), sets: make([][failureWays]failing, failureSets)}
}

// Record counts a failed authentication from an address if the limit admits it. Respond with 401 if the decision admits
// it, otherwise with 429. Both responses carry the figures of the decision.
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

// windowIn returns the window of network n in its set. If n has no slot, n takes over the emptiest slot and its count.
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

// emptier reports whether a counts less than b or, if both count the same, frees capacity sooner.
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

// Check returns the figures of an address, for responses that need no key. It counts nothing and never refuses.
func (f *Failures) Check(now Second, from netip.Addr) Decision {
	return Decide(f.window(now, networkOf(from)).status(now, ByFailures, 0, FailuresPerMinute))
}
