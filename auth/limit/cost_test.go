package limit

import (
	"net/netip"
	"testing"
)

func TestOperations_NoAllocation(t *testing.T) {
	var c Counters
	f, from := NewFailures(), netip.MustParseAddr("2001:db8::1")
	request := Request{Limits: limitsOf(Enterprise), Test: true, Tokens: 100}
	now := noon
	for name, do := range map[string]func(){
		"take":    func() { c.Requests.Take(now, 1, 1_000) },
		"reserve": func() { r, _ := c.Tokens.Reserve(now, 100, 100_000); c.Tokens.Settle(now+1, &r, 50) },
		"refuse":  func() { c.Tokens.Wait(now, 100_000, 100_000); c.Tokens.Reset(now) },
		"check":   func() { c.Check(now, request) },
		"admit":   func() { c.Admit(now, request); c = Counters{} },
		"fail":    func() { f.Record(now, from) },
	} {
		equal(t, "the allocations of "+name, testing.AllocsPerRun(1_000, func() { now++; do() }), 0)
	}
}

func BenchmarkTake(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for i := range b.N {
		w.Take(noon+Second(i>>10), 1, MaxLimit)
	}
}

// BenchmarkTakeAndAdvance calls Take with a time that is a second later in each call.
func BenchmarkTakeAndAdvance(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for i := range b.N {
		w.Take(noon+Second(i), 1, MaxLimit)
	}
}

// BenchmarkTakeAfterAMinute calls Take with a time that is a minute later in each call. So each Take must clear nearly all
// buckets.
func BenchmarkTakeAfterAMinute(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for i := range b.N {
		w.Take(noon+Second(i)*60, 1, MaxLimit)
	}
}

func BenchmarkReserveAndSettle(b *testing.B) {
	var w Window
	b.ReportAllocs()
	for i := range b.N {
		r, _ := w.Reserve(noon+Second(i>>10), 100, MaxLimit)
		w.Settle(noon+Second(i>>10)+2, &r, 60)
	}
}

func BenchmarkAdmit(b *testing.B) {
	var c Counters
	request := Request{Limits: TierLimits{RequestsPerMinute: MaxLimit, TokensPerMinute: MaxLimit}, Tokens: 10}
	b.ReportAllocs()
	for i := range b.N {
		c.Admit(noon+Second(i>>10), request)
	}
}

func BenchmarkRefuse(b *testing.B) {
	var c Counters
	request := Request{Limits: limitsOf(Pro), Tokens: 10}
	c.Requests.Charge(noon+60, 300)
	b.ReportAllocs()
	for range b.N {
		c.Admit(noon+60, request)
	}
}

func BenchmarkFail(b *testing.B) {
	f, from := NewFailures(), netip.MustParseAddr("2001:db8::1")
	b.ReportAllocs()
	for i := range b.N {
		f.Record(noon+Second(i>>10), from)
	}
}

func BenchmarkFailFromRotatingAddresses(b *testing.B) {
	f := NewFailures()
	b.ReportAllocs()
	for i := range b.N {
		f.Record(noon+Second(i>>10), numbered(i))
	}
}
