package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations, from 1 µs to longest, with a precision of three digits. It may be used from any goroutine.
type histogram struct {
	mu     sync.Mutex
	counts *hdrhistogram.Histogram // guarded by mu
}

// longest is the highest value of a histogram: longer than any timeout of a turn. A longer duration counts as longest.
const longest = 10 * time.Minute

func newHistogram() *histogram {
	return &histogram{counts: hdrhistogram.New(1, longest.Microseconds(), 3)}
}

func (h *histogram) observe(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.counts.RecordValue(min(max(d, time.Microsecond), longest).Microseconds()) // in range, so there is no error
}

// Quantiles are the percentiles of durations, in milliseconds.
type Quantiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// quantiles returns the percentiles; nil if the histogram is empty.
func (h *histogram) quantiles() *Quantiles {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) float64 { return float64(h.counts.ValueAtQuantile(p)) / 1000 }
	return &Quantiles{Count: h.counts.TotalCount(), P50: at(50), P90: at(90), P99: at(99), Max: float64(h.counts.Max()) / 1000}
}
