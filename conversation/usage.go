package conversation

import (
	"context"
	"time"

	"parley/conversation/usage"
	"parley/stream"
)

// UsageStore reads the usage of owners.
type UsageStore interface {
	// Usage returns an owner's usage in each hour h with from <= h < to. It leaves out hours that ended
	// usage.RetentionHours ago or earlier. It counts all requests that have been admitted, including the current
	// request. Request counts become durable within a second; other counts are durable already.
	Usage(ctx context.Context, owner Owner, from, to usage.Hour) (UsageSpan, error)
}

// UsageSpan is an owner's usage in several hours, all read at one moment.
type UsageSpan struct {
	// Now is the hour of the read, by the store's clock.
	Now usage.Hour
	// Hours are sorted. They do not include an hour if nothing was counted in it and all sessions from it are gone.
	Hours []usage.Hourly
	// Active is the number of the owner's sessions that exist now, no matter when they were created.
	Active int
	// Keys is the number of the owner's active API keys.
	Keys int64
	// StoredBytes is the number of bytes that count in the owner's quota storedBytes. The bytes of an expired session may
	// count for up to 10 minutes more.
	StoredBytes int64
	// Sockets is the number of the owner's open WebSockets on all nodes.
	Sockets int64
}

// UsageOfSession returns the counts for the creation of a session.
func UsageOfSession() usage.Bucket { return usage.Bucket{Sessions: 1} }

// UsageOfTurnStart returns the counts for the beginning of a turn, in the hour of its message. role is the message's
// role. In addition, the store adds the time since the session's last activity to SessionTime, in the hour of the
// session's creation.
func UsageOfTurnStart(role Role) usage.Bucket {
	b := usage.Bucket{AssistantMessages: 1}
	if role == System {
		b.SystemMessages = 1
	} else {
		b.UserMessages = 1
	}
	return b
}

// UsageOfTurnEnd returns the counts for the end of a turn, in the hour of the end.
func UsageOfTurnEnd(reply *Message, timing Timing) usage.Bucket {
	var b usage.Bucket
	if u := reply.Usage; u != nil {
		b.PromptTokens, b.CompletionTokens = int64(u.Prompt), int64(u.Completion)
	}
	switch reply.Status {
	case stream.Completed:
		b.Completed = 1
	case stream.Cancelled:
		b.Cancelled = 1
	case stream.Failed:
		b.Failed = 1
	case stream.Interrupted:
		b.Interrupted = 1
	}
	observe(&b.FirstToken, timing.FirstToken)
	observe(&b.Duration, timing.Duration)
	return b
}

// UsageOfSummary returns the counts for a summary, in the hour in which it is stored.
func UsageOfSummary(u Usage) usage.Bucket {
	return usage.Bucket{PromptTokens: int64(u.Prompt), CompletionTokens: int64(u.Completion)}
}

// observe counts a duration in milliseconds, rounded up. It ignores 0, which means unknown.
func observe(h *usage.Histogram, d time.Duration) {
	if d > 0 {
		h.Observe(int64((d + time.Millisecond - 1) / time.Millisecond))
	}
}

// Period is a span of time, from Start up to and not including End.
type Period struct {
	Start       Time              `json:"start"`
	End         Time              `json:"end"`
	Granularity usage.Granularity `json:"granularity"`
}

// Metrics are an owner's figures for a period.
type Metrics struct {
	Period Period `json:"period"`
	usage.Metrics
	Series []MetricsEntry `json:"series"`
}

// MetricsEntry has the figures of one hour, day, week or month of a series. The period may cut off the first and the
// last of these units.
type MetricsEntry struct {
	Start Time `json:"start"`
	End   Time `json:"end"`
	usage.Metrics
}

// UsageReport compares an owner's usage in a billing period with its quotas. The period is a calendar month in UTC.
type UsageReport struct {
	BillingPeriod struct {
		Start Time `json:"start"`
		End   Time `json:"end"`
	} `json:"billingPeriod"`
	usage.Report
}
