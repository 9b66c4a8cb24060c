package limit

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// numbered returns the address with number i. Addresses with even numbers are IPv4, the others are IPv6.
func numbered(i int) netip.Addr {
	var b [16]byte
	if i%2 == 0 {
		binary.BigEndian.PutUint32(b[:], uint32(i))
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	binary.BigEndian.PutUint64(b[:], 0x2001<<48+uint64(i))
	return netip.AddrFrom16(b)
}

func TestFailures_AdmitsThirtyAMinute(t *testing.T) {
	f := NewFailures()
	a, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range 30 {
		equal(t, "30 failures", f.Record(noon+Second(i), a), Decision{Limit: 30, Remaining: 29 - i, Reset: noon + 61})
	}
	for range 100 {
		equal(t, "more failures", f.Record(noon+40, a),
			Decision{Refused: ByFailures, RefusedLimit: 30, Limit: 30, Reset: noon + 61, RetryAfter: 21})
	}
	equal(t, "a failure of another address", f.Record(noon+40, other), Decision{Limit: 30, Remaining: 29, Reset: noon + 101})
	equal(t, "a failure after the first one has left", f.Record(noon+61, a), Decision{Limit: 30, Remaining: 0, Reset: noon + 62})
}

func TestNetworkOf_SameForIPv6AddressesOfOneNetwork(t *testing.T) {
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "::192.0.2.1", false},
		{"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
		{"fe80::1%eth0", "fe80::2%eth1", true},
		{"0.0.0.0", "::", false},
		{"", "", true},
		{"", "0.0.0.0", false},
		{"", "::", false},
	} {
		var one, other netip.Addr
		if c.one != "" {
			one = netip.MustParseAddr(c.one)
		}
		if c.other != "" {
			other = netip.MustParseAddr(c.other)
		}
		equal(t, c.one+" and "+c.other+" have the same network", networkOf(one) == networkOf(other), c.same)
		equal(t, c.one+" has the network of a free slot", networkOf(one) == network{}, false)
	}
}

func TestFailures_AddressesCountedSeparately(t *testing.T) {
	f := NewFailures()
	for i := range 100 * 200 {
		d := f.Record(noon, numbered(i%200))
		equal(t, "the failure is admitted", d.Admitted(), i/200 < 30)
	}
}

func TestFailures_NewAddressEachTime_TotalIsLimited(t *testing.T) {
	f := NewFailures()
	if size := unsafe.Sizeof(f.sets[0]) * uintptr(len(f.sets)); size > 1_200_000 {
		t.Fatalf("the slots take %d bytes, want at most 1,200,000", size)
	}
	next, admitted := 0, 0
	allocated := testing.AllocsPerRun(200_000, func() {
		if d := f.Record(noon+Second(next%61), numbered(next)); d.Admitted() { // the clock also goes back, from 60 to 0
			admitted++
		}
		next++
	})
	equal(t, "the allocations", allocated, 0)
	equal(t, "the number of admitted failures of 200,001", admitted, failureSets*failureWays*FailuresPerMinute)
	if d := f.Record(noon+60, numbered(next)); d.Refused != ByFailures || d.RetryAfter < 1 || d.RetryAfter > 61 {
		t.Fatalf("the decision about one more address is %+v, want a refusal", d)
	}
	equal(t, "the decision a minute later", f.Record(noon+121, numbered(next)), Decision{Limit: 30, Remaining: 29, Reset: noon + 182})
}

func TestFailures_AddressKeepsFailing_NotEvicted(t *testing.T) {
	f := NewFailures()
	persistent := netip.MustParseAddr("203.0.113.9")
	for range 31 {
		f.Record(noon, persistent)
	}
	for i := range 20_000 {
		f.Record(noon+30, numbered(i))
	}
	d := f.Record(noon+60, persistent)
	equal(t, "the limit that refuses", d.Refused, ByFailures)
}

func TestFailures_ManyAddressesInOneSet_LimitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set [failureWays]failing // an attacker who knows the seed can choose addresses of one set
		var admitted []Second
		now := noon
		for range 600 {
			now += Second(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1}).Draw(t, "step"))
			who := network{uint64(rapid.IntRange(0, 40).Draw(t, "who")), 4}
			if windowIn(&set, now, who).Take(now, 1, FailuresPerMinute) {
				admitted = append(admitted, now)
			}
		}
		const most = failureWays * FailuresPerMinute
		for i := most; i < len(admitted); i++ {
			if admitted[i]-admitted[i-most] <= 60 {
				t.Fatalf("the set admitted more than %d failures from second %d to second %d",
					most, admitted[i-most], admitted[i])
			}
		}
	})
}

func TestFailures_SetFull_EvictsAddressWithFewestFailures(t *testing.T) {
	var set [failureWays]failing
	for i := range set {
		set[i].network = network{uint64(i), 4}
		set[i].window.Charge(noon+Second(i), 10)
	}
	set[3].window.Charge(noon+20, 5)
	set[5].window.Charge(noon+20, 1)
	set[5].window.Settle(noon+20, &Reservation{noon + 5, 5}, 0) // now slot 5 has 6 failures, fewer than any other slot
	equal(t, "the slot of a new address", windowIn(&set, noon+30, network{100, 4}), &set[5].window)
	set[5].window.Charge(noon+30, 10)
	equal(t, "the slot of the next new address", windowIn(&set, noon+30, network{101, 4}), &set[0].window)
	equal(t, "the slot of an address that has one", windowIn(&set, noon+30, network{3, 4}), &set[3].window)
	equal(t, "the inherited count", windowIn(&set, noon+30, network{101, 4}).Used(noon+30), 10)
}
