package usage

import (
	"math/bits"
	"slices"
)

// Histogram counts durations in milliseconds. It has one cell for each millisecond below 16 ms, then eight cells of
// equal width for each octave up to 2^22 ms (70 minutes). Longer durations count in the last cell. Only cells that are
// not empty are in the slice, in the order of their indexes. The zero value is empty. Histograms are merged by adding
// their counts.
type Histogram []cell

type cell struct {
	index uint8
	count int64
}

const (
	octaveBits = 3 // 2^3 cells for each octave
	octave     = 1 << octaveBits
	// longest is the upper bound of the last cell, in milliseconds. Longer durations also count in the last cell.
	longest = 1<<22 - 1
	// cells is the number of cells.
	cells = (22-octaveBits-1)*octave + 2*octave
)

// indexOf returns the cell of a duration.
func indexOf(milliseconds int64) uint8 {
	v := uint64(min(max(milliseconds, 0), longest))
	shift := max(0, bits.Len64(v)-octaveBits-1)
	return uint8(shift*octave + int(v>>shift))
}

// middleOf returns the middle of a cell in milliseconds, rounded down.
func middleOf(index uint8) int64 {
	shift := max(0, int(index)/octave-1)
	least := (int64(index) - int64(shift)*octave) << shift
	return least + (1<<shift-1)/2
}

// Observe counts a duration. A negative duration counts as 0.
func (h *Histogram) Observe(milliseconds int64) { h.add(indexOf(milliseconds), 1) }

func (h *Histogram) add(index uint8, n int64) {
	if last := len(*h) - 1; last < 0 || (*h)[last].index < index { // the usual case, because stores return fields in order
		*h = append(*h, cell{index, n})
		return
	}
	at, found := slices.BinarySearchFunc(*h, index, func(c cell, index uint8) int { return int(c.index) - int(index) })
	if !found {
		*h = slices.Insert(*h, at, cell{index: index})
	}
	(*h)[at].count += n
}

// Count returns the number of counted durations.
func (h Histogram) Count() (n int64) {
	for _, c := range h {
		n += c.count
	}
	return n
}

// Percentile returns the p-th percentile in milliseconds, for p from 1 to 100. It is the smallest counted duration d for
// which at least p percent of the durations are at most d. The result is exact below 16 ms, and off by less than 1/16 up
// to 70 minutes. ok is false if the histogram is empty.
func (h Histogram) Percentile(p int) (milliseconds int64, ok bool) {
	total := h.Count()
	if total == 0 {
		return 0, false
	}
	rank := max(1, (total*int64(p)+99)/100)
	for _, c := range h {
		if rank -= c.count; rank <= 0 {
			return middleOf(c.index), true
		}
	}
	return middleOf(h[len(h)-1].index), true
}
