package conversation

import (
	"fmt"
	"time"
)

// Time is a point in time, in milliseconds since 1970, UTC. In JSON, a Time is an ISO 8601 string with milliseconds and
// Z, for example "2026-03-01T11:30:00.045Z".
type Time int64

const timeLayout = "2006-01-02T15:04:05.000Z"

// TimeOf returns t, rounded down to the millisecond.
func TimeOf(t time.Time) Time { return Time(t.UnixMilli()) }

// Go returns t as a time.Time.
func (t Time) Go() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t plus d; a fraction of a millisecond in d is dropped.
func (t Time) Add(d time.Duration) Time { return t + Time(d.Milliseconds()) }

func (t Time) String() string { return t.Go().Format(timeLayout) }

// MarshalJSON writes t as an ISO 8601 string.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, len(timeLayout)+2)), nil
}

// UnmarshalJSON reads the format that MarshalJSON writes. It returns an error for any other format.
func (t *Time) UnmarshalJSON(b []byte) error {
	parsed, err := time.Parse(`"`+timeLayout+`"`, string(b))
	if err != nil {
		return fmt.Errorf("invalid time: %w", err)
	}
	*t = TimeOf(parsed)
	return nil
}
