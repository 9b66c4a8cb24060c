package usage

import "iter"

// Hour is a UTC hour, counted from 1970.
type Hour int64

const (
	millisecondsAnHour = 3_600_000
	// RetentionHours is the number of hours for which a bucket is kept: 400 days, a year and the same month of the year
	// before.
	RetentionHours = 400 * 24
)

// HourOf returns the hour that contains a time in milliseconds since 1970.
func HourOf(milliseconds int64) Hour {
	return Hour(floorDiv(milliseconds, millisecondsAnHour))
}

// HourAfter returns the first hour that begins at or after a time in milliseconds since 1970.
func HourAfter(milliseconds int64) Hour { return -HourOf(-milliseconds) }

// Milliseconds returns the beginning of the hour, in milliseconds since 1970.
func (h Hour) Milliseconds() int64 { return int64(h) * millisecondsAnHour }

// floorDiv returns a/b rounded down; b must be positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Bucket holds the counts of one owner in one hour. The zero value is empty. A copy shares its histograms with the
// original.
type Bucket struct {
	// Sessions is the number of sessions created in the hour. SessionTime is the total duration of these sessions, from
	// createdAt to lastActivity, in milliseconds. It grows while these sessions are used.
	Sessions    int64
	SessionTime int64
	// The number of messages by role. The message and the reply of a turn count when the turn begins.
	UserMessages      int64
	AssistantMessages int64
	SystemMessages    int64
	// The tokens of calls to the model. Tokens count when the store ends the turn or saves the summary.
	PromptTokens     int64
	CompletionTokens int64
	// Requests is the number of requests that were admitted.
	Requests int64
	// The number of replies by final state. A reply counts when it ends.
	Completed   int64
	Cancelled   int64
	Failed      int64
	Interrupted int64
	// FirstToken has the times from the beginning of a turn to the first text of its reply. Duration has the times to
	// the end of the reply. Both count when the reply ends.
	FirstToken Histogram
	Duration   Histogram
}

// Field is the number that identifies a count of a bucket. Stores keep these numbers, so they never change their meaning.
type Field uint16

// The fields. The numbers 1 to 31 are for counters. The cells of the two histograms follow.
const (
	firstTokenField Field = 32
	durationField   Field = firstTokenField + cells
	endField        Field = durationField + cells
)

// counters returns the counters of a bucket, in the order of their fields, from 1. Add new counters at the end; at most
// 31 are possible.
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

// AddField adds n to the count of a field. It ignores unknown fields, which newer versions have written.
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

// Add adds all counts of another bucket.
func (b *Bucket) Add(other *Bucket) {
	for f, n := range other.All() {
		b.AddField(f, n)
	}
}

// Reset empties the bucket. It reuses the memory of its histograms.
func (b *Bucket) Reset() {
	*b = Bucket{FirstToken: b.FirstToken[:0], Duration: b.Duration[:0]}
}

// Hourly is an owner's usage in one hour.
type Hourly struct {
	Hour   Hour
	Bucket Bucket
	// Existing is the number of sessions that were created in this hour and still exist.
	Existing int
}
