package limit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
)

// FailuresPerMinute is how many failed authentications a minute an address may make (design section 6).
const FailuresPerMinute = 30

const (
	failureSets = 512 // each of failureWays addresses
	failureWays = 8
)

// Failures counts failed authentications by address, of an IPv6 address by its /64. It is not for concurrent use.
//
// It keeps 4,096 addresses and never more: 1.1 MiB without pointers, of which the system hands out only what has been
// touched. An address may stand in one of eight places, chosen by a keyed hash that nobody outside can aim at. Where
// all eight are others' whose failures still count, it takes the place of the one with the fewest (of those, of the
// one that empties first) *and what was counted there*. So rotating addresses neither grows it nor escapes it: no
// place admits more than 30 a minute, whoever stands there. What that costs falls, while thousands of addresses fail
// within a minute, on newcomers that fail too: they are refused sooner. One that has been displaced and comes back
// may then be let off what it had. A valid key is never refused, if it is only asked after a key has failed.
type Failures struct {
	seed maphash.Seed
	sets [][failureWays]failing
}

// failing is an address and its failures; free if the address has no family.
type failing struct {
	network network
	window  Window
}

// network is what counts as one address.
type network struct {
	bits   uint64 // of an IPv6 address the first 64
	family uint8  // 4 or 6; 1 for what is no address (a Unix socket); 0 for none
}

// NewFailures has counted none.
func NewFailures() *Failures {
	return &Failures{seed: maphash.MakeSeed(), sets: make([][failureWays]failing, failureSets)}
}

// Fail counts a failed authentication from the address, and says whether there was room for it: if so the answer is
// 401, if not 429, both with the decision's figures. What is refused is not counted.
func (f *Failures) Record(now Second, from netip.Addr) Decision {
	w := f.window(now, networkOf(from))
	asked := w.standing(now, ByFailures, 1, FailuresPerMinute)
	if w.Take(now, 1, FailuresPerMinute) {
		asked = w.standing(now, ByFailures, 0, FailuresPerMinute)
	}
	return Decide(asked)
}

func (f *Failures) window(now Second, n network) *Window {
	return windowIn(&f.sets[maphash.Comparable(f.seed, n)%failureSets], now, n)
}

// windowIn is that of the network in its set: its own, or the emptiest, which it takes over.
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

// emptier reports whether less counts in a than in b or, if it is as much, whether it begins to leave sooner.
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

// Check says how an address stands, and counts nothing: the figures for a response that no key was asked for.
func (f *Failures) Check(now Second, from netip.Addr) Decision {
	return Decide(f.window(now, networkOf(from)).standing(now, ByFailures, 0, FailuresPerMinute))
}
