// Package usage counts what happened, hour by hour, and makes the figures of analytics of it (spec: Metrics object,
// Usage object; design section 2, metrics and usage report).
//
// A [Bucket] is what happened in one UTC hour. It is a set of counts, so that two of them are merged by adding, in
// whatever order, and a store needs to know no more of it than that (see [Field]). The package is pure: it does no
// I/O, and time is an argument.
package usage

import "iter"

// Hour is a UTC hour, numbered from 1970 on.
type Hour int64

const (
	millisecondsAnHour = 3_600_000
	// Kept is for how many hours a bucket is kept: 400 days.
	RetentionHours = 400 * 24
)

// HourOf returns the hour of a moment in milliseconds since 1970.
func HourOf(milliseconds int64) Hour {
	return Hour(floorDiv(milliseconds, millisecondsAnHour))
}

// HourAfter returns the first hour that begins no earlier than a moment in milliseconds since 1970.
func HourAfter(milliseconds int64) Hour { return -HourOf(-milliseconds) }

// Milliseconds returns when the hour begins, in milliseconds since 1970.
func (h Hour) Milliseconds() int64 { return int64(h) * millisecondsAnHour }

// floorDiv returns a/b rounded down; b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Bucket is what happened to one owner in one hour. The zero value is empty; a copy shares its histograms.
type Bucket struct {
	// Sessions is how many were created, and SessionTime how long they have lasted, from createdAt to lastActivity, in
	// milliseconds: it goes on growing in the hour of their creation.
	Sessions    int64
	SessionTime int64
	// The messages, by role. Both messages of a turn count when it begins.
	UserMessages      int64
	AssistantMessages int64
	SystemMessages    int64
	// The tokens of the calls to the model, when these are over.
	PromptTokens     int64
	CompletionTokens int64
	// Requests is how many were admitted.
	Requests int64
	// The replies that ended, by their ending.
	Completed   int64
	Cancelled   int64
	Failed      int64
	Interrupted int64
	// Of the replies that ended, how long after the beginning of their turn their first text came, and they ended.
	FirstToken Histogram
	Duration   Histogram
}

// Field numbers one count of a bucket. Stores keep the numbers, so they never change their meaning; the counts of a
// bucket with all others being zero, a store that adds fields one by one merges buckets.
type Field uint16

// The fields: the counters from 1 on, then the cells of the two histograms.
const (
	firstTokenField Field = 32
	durationField   Field = firstTokenField + cells
	endField        Field = durationField + cells
)

// counters returns the counters of a bucket: that of field 1 first. New ones go to the end; there is room for 31.
func (b *Bucket) counters() [12]*int64 {
	return [...]*int64{
		&b.Sessions, &b.SessionTime, &b.UserMessages, &b.AssistantMessages, &b.SystemMessages, &b.PromptTokens,
		&b.CompletionTokens, &b.Requests, &b.Completed, &b.Cancelled, &b.Failed, &b.Interrupted,
	}
}

// All returns the counts that are not zero, in the order of their fields.
func (b *Bucket) All() iter.Seq2[Field, int64] {
	return func(yield func(Field, int64) bool) {
		for i, n := range b.counters() {
			if *n != 0 && !yield(Field(i+1), *n) {
				return
			}
		}
		for _, h := range []struct {
			from      Field
			histogram Histogram
		}{{firstTokenField, b.FirstToken}, {durationField, b.Duration}} {
			for _, c := range h.histogram {
				if !yield(h.from+Field(c.index), c.count) {
					return
				}
			}
		}
	}
}

// Count adds to the count of a field. A field that is unknown, of a later version, is passed over.
func (b *Bucket) AddField(f Field, n int64) {
	counters := b.counters()
	switch {
	case 1 <= f && int(f) <= len(counters):
		*counters[f-1] += n
	case firstTokenField <= f && f < durationField:
		b.FirstToken.add(uint8(f-firstTokenField), n)
	case durationField <= f && f < endField:
		b.Duration.add(uint8(f-durationField), n)
	}
}

// Add adds what another bucket has counted.
func (b *Bucket) Add(other *Bucket) {
	for f, n := range other.All() {
		b.AddField(f, n)
	}
}

// Reset makes the bucket empty; the room of its histograms is used again.
func (b *Bucket) Reset() {
	*b = Bucket{FirstToken: b.FirstToken[:0], Duration: b.Duration[:0]}
}

// Hourly is what an owner has of one hour.
type Hourly struct {
	Hour   Hour
	Bucket Bucket
	// Existing is how many of the sessions created in that hour exist still.
	Existing int
}
