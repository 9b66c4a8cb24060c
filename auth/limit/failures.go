package limit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// FailuresPerMinute is the maximum number of failed authentications a minute from one address. It is enough for a team
// behind one NAT that has deployed a wrong key, and far too few to guess 160 random bits.
const FailuresPerMinute = 30

const (
	failureSets = 512 // number of sets
	failureWays = 8   // number of slots in a set
)

// Failures counts failed authentications by address. An IPv6 network /64 counts as one address, because one customer
// usually has all addresses of such a network. A value of Failures is not safe for concurrent use.
//
// Failures has a fixed size: slots for 4,096 addresses, in 1.1 MiB without pointers. A hash with a random, secret seed maps
// each address to a set of eight slots. If all slots of the set are in use, a new address evicts the address with the fewest
// failures (among equals, the address that resets first). The new address inherits the failures of the slot. So the eight
// slots of a set admit at most 8 times 30 failures a minute, even if an attacker changes addresses all the time.
//
// This has a price if thousands of addresses fail in the same minute. A new address may be refused sooner, and an evicted
// address may lose its count. Failures never causes the refusal of a valid key, because callers use it only after a key
// has failed.
type Failures struct {
	seed maphash.Seed
	sets [][failureWays]failing
}

// failing is a slot. It holds an address and the failures of that address. The slot is free if network.family is 0.
type failing struct {
	network network
	window  Window
}

// network identifies an IPv4 address or an IPv6 network /64.
type network struct {
	bits   uint64 // the IPv4 address, or the first 64 bits of the IPv6 address
	family uint8  // 4 or 6; 1 for a client without an address (Unix socket); 0 for a free slot
}

// NewFailures returns a value of Failures without addresses.
func NewFailures() *Failures {
	return &Failures{seed: maphash.MakeSeed(), sets: make([][failureWays]failing, failureSets)}
}

// Record counts a failed authentication from an address. If the address has reached the limit, Record counts nothing, and
// the decision refuses the request. The caller must respond with 401 if the decision admits the request, else with 429. Both
// responses contain the figures of the decision.
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

// windowIn returns the window of network n in its set. If n has no slot, windowIn gives n the slot with the fewest
// failures, and n inherits these failures.
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

// emptier reports whether window a has a smaller total than window b. If the totals are equal, it reports whether a frees
// capacity sooner.
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

// Check returns the figures of an address, for responses to requests without a key. It counts nothing, and its decision
// never refuses.
func (f *Failures) Check(now Second, from netip.Addr) Decision {
	return Decide(f.window(now, networkOf(from)).status(now, ByFailures, 0, FailuresPerMinute))
}
