package conversation

import (
	"context"
	"time"

	"parley/conversation/usage"
	"parley/stream"
)

// UsageStore reads what owners have used.
type UsageStore interface {
	// Usage returns an owner's usage in the hours from from up to and not including to. It leaves out hours that ended
	// usage.RetentionHours ago or earlier. It includes every request that was admitted before this one, and this one; request counts
	// need be durable only within a second.
	Usage(ctx context.Context, owner Owner, from, to usage.Hour) (UsageSpan, error)
}

// UsageSpan is an owner's usage, all as of one moment.
type UsageSpan struct {
	// Now is the hour of that moment, by the store's clock.
	Now usage.Hour
	// Hours are in order. Hours in which nothing was counted, and none of whose sessions exist, are left out.
	Hours []usage.Hourly
	// Active is how many sessions exist, whenever they were created.
	Active int
}

// UsageOfSession returns what the creation of a session counts.
func UsageOfSession() usage.Bucket { return usage.Bucket{Sessions: 1} }

// UsageOfTurnStart returns what the beginning of a turn counts, with a message of that role, in the hour of the message. The
// time since the session's last activity counts besides, as SessionTime, in the hour of the session's creation.
func UsageOfTurnStart(role Role) usage.Bucket {
	b := usage.Bucket{AssistantMessages: 1}
	if role == System {
		b.SystemMessages = 1
	} else {
		b.UserMessages = 1
	}
	return b
}

// UsageOfTurnEnd returns what the end of a turn counts, in the hour of the end.
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

// UsageOfSummary returns what a summary counts, in the hour in which it is stored.
func UsageOfSummary(u Usage) usage.Bucket {
	return usage.Bucket{PromptTokens: int64(u.Prompt), CompletionTokens: int64(u.Completion)}
}

// observe counts a duration if it is known.
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

// MetricsEntry is one entry of a series: the part of a unit of the granularity that lies in the period.
type MetricsEntry struct {
	Start Time `json:"start"`
	End   Time `json:"end"`
	usage.Metrics
}

// UsageReport is how much of its limits an owner has used in a billing period, which is a calendar month in UTC.
type UsageReport struct {
	BillingPeriod struct {
		Start Time `json:"start"`
		End   Time `json:"end"`
	} `json:"billingPeriod"`
	usage.Report
}
