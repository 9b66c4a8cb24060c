package usage

import "time"

// Metrics are the figures of a period, in the JSON format of the API. An average of no values is 0.
type Metrics struct {
	Sessions struct {
		Total           int64   `json:"total"`           // created in the period
		Active          int64   `json:"active"`          // created in the period and still existing
		AverageDuration float64 `json:"averageDuration"` // mean time from createdAt to lastActivity, in seconds
	} `json:"sessions"`
	Messages struct {
		Total             int64   `json:"total"` // system messages included
		AveragePerSession float64 `json:"averagePerSession"`
		UserMessages      int64   `json:"userMessages"`
		AssistantMessages int64   `json:"assistantMessages"`
	} `json:"messages"`
	Tokens struct {
		Total             int64   `json:"total"`
		Prompt            int64   `json:"prompt"`
		Completion        int64   `json:"completion"`
		AveragePerMessage float64 `json:"averagePerMessage"`
	} `json:"tokens"`
	Replies struct {
		Completed   int64 `json:"completed"`
		Cancelled   int64 `json:"cancelled"`
		Failed      int64 `json:"failed"`
		Interrupted int64 `json:"interrupted"`
	} `json:"replies"`
	// FirstToken is the time from the beginning of a turn to the first text of its reply, in milliseconds; null if no
	// reply had text.
	FirstToken struct {
		P50 *int64 `json:"p50"`
		P95 *int64 `json:"p95"`
	} `json:"firstToken"`
}

// MetricsOf returns the figures of several hours together.
func MetricsOf(hours []Hourly) Metrics {
	var sum Bucket
	var f Metrics
	for i := range hours {
		sum.Add(&hours[i].Bucket)
		f.Sessions.Active += int64(hours[i].Existing)
	}
	f.Sessions.Total = sum.Sessions
	f.Sessions.AverageDuration = average(sum.SessionTime, 1000*sum.Sessions)
	f.Messages.UserMessages, f.Messages.AssistantMessages = sum.UserMessages, sum.AssistantMessages
	f.Messages.Total = sum.UserMessages + sum.AssistantMessages + sum.SystemMessages
	f.Messages.AveragePerSession = average(f.Messages.Total, sum.Sessions)
	f.Tokens.Prompt, f.Tokens.Completion = sum.PromptTokens, sum.CompletionTokens
	f.Tokens.Total = sum.PromptTokens + sum.CompletionTokens
	f.Tokens.AveragePerMessage = average(f.Tokens.Total, f.Messages.Total)
	f.Replies.Completed, f.Replies.Cancelled = sum.Completed, sum.Cancelled
	f.Replies.Failed, f.Replies.Interrupted = sum.Failed, sum.Interrupted
	f.FirstToken.P50, f.FirstToken.P95 = percentile(sum.FirstToken, 50), percentile(sum.FirstToken, 95)
	return f
}

func average(sum, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(sum) / float64(of)
}

func percentile(h Histogram, p int) *int64 {
	milliseconds, ok := h.Percentile(p)
	if !ok {
		return nil
	}
	return &milliseconds
}

// Granularity is the unit of a series: an hour, day, week or month of the UTC calendar.
type Granularity string

// The granularities.
const (
	ByHour  Granularity = "hour"
	ByDay   Granularity = "day"
	ByWeek  Granularity = "week" // from Monday on
	ByMonth Granularity = "month"
)

// Valid reports whether g is one of the granularities.
func (g Granularity) Valid() bool {
	return g == ByHour || g == ByDay || g == ByWeek || g == ByMonth
}

// next returns the first hour after the unit that contains h.
func (g Granularity) next(h Hour) Hour {
	t := time.UnixMilli(h.Milliseconds()).UTC()
	year, month, day := t.Date()
	switch g {
	case ByDay:
		day++
	case ByWeek:
		day += 7 - (int(t.Weekday())+6)%7 // Monday is the first
	case ByMonth:
		month, day = month+1, 1
	default:
		return h + 1
	}
	return HourOf(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).UnixMilli())
}

// Entry has the figures of one unit of a series. The period may cut off the first and the last unit.
type Entry struct {
	From, To Hour // To is not included
	Metrics  Metrics
}

// Series returns one entry for each unit in the period, including empty units. The period has each hour h with from <=
// h < to. hours must be sorted and within the period.
func Series(hours []Hourly, from, to Hour, g Granularity) []Entry {
	series := []Entry{}
	for from < to {
		entry := Entry{From: from, To: min(to, g.next(from))}
		n := 0
		for n < len(hours) && hours[n].Hour < entry.To {
			n++
		}
		entry.Metrics = MetricsOf(hours[:n])
		series, hours, from = append(series, entry), hours[n:], entry.To
	}
	return series
}

// Month returns the calendar month that contains an hour: its first hour, and the first hour of the next month.
func Month(h Hour) (from, to Hour) {
	year, month, _ := time.UnixMilli(h.Milliseconds()).UTC().Date()
	return HourOf(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMilli()), ByMonth.next(h)
}

// Limits are the limits with which Report compares an owner's usage.
type Limits struct {
	Requests, Tokens int64 // in a calendar month
	EnforcedTokens   int64 // Tokens if the store enforces this limit, otherwise 0
	Owned                  // the most that the owner may have at one time
}

// Owned holds the numbers of things that an owner has now.
type Owned struct {
	Sessions    int64 // sessions that have not expired
	StoredBytes int64 // bytes that count in the quota storedBytes
	Keys        int64 // active API keys
	Sockets     int64 // open WebSockets on all nodes
}

// Report compares an owner's usage with its limits. Percentages may exceed 100.
type Report struct {
	Requests Quota        `json:"requests"`
	Tokens   Quota        `json:"tokens"`
	Sessions SessionQuota `json:"sessions"`
	Quotas   Quotas       `json:"quotas"`
}

// Quotas compares usage with the quotas that the store enforces. TokensPerMonth is nil if the store does not enforce it.
type Quotas struct {
	Keys           Quota `json:"keys"`
	ActiveSessions Quota `json:"activeSessions"`
	StoredBytes    Quota `json:"storedBytes"`
	Sockets        Quota `json:"sockets"`

	TokensPerMonth *Quota `json:"tokensPerMonth,omitempty"`
}

// Quota compares usage with a limit. Percentage is 0 if Limit is 0.
type Quota struct {
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Percentage float64 `json:"percentage"`
}

// SessionQuota compares the number of existing sessions with a limit.
type SessionQuota struct {
	Used       int64   `json:"active"`
	Limit      int64   `json:"limit"`
	Percentage float64 `json:"percentage"`
}

// ReportOf returns the report on an owner's usage in these hours, and on the things that the owner has now.
func ReportOf(hours []Hourly, owned Owned, limits Limits) Report {
	var requests, tokens int64
	for i := range hours {
		b := &hours[i].Bucket
		requests += b.Requests
		tokens += b.PromptTokens + b.CompletionTokens
	}
	report := Report{
		Requests: quota(requests, limits.Requests),
		Tokens:   quota(tokens, limits.Tokens),
		Sessions: SessionQuota(quota(owned.Sessions, limits.Sessions)),
		Quotas: Quotas{
			Keys:           quota(owned.Keys, limits.Keys),
			ActiveSessions: quota(owned.Sessions, limits.Sessions),
			StoredBytes:    quota(owned.StoredBytes, limits.StoredBytes),
			Sockets:        quota(owned.Sockets, limits.Sockets),
		},
	}
	if limits.EnforcedTokens > 0 {
		enforced := quota(tokens, limits.EnforcedTokens)
		report.Quotas.TokensPerMonth = &enforced
	}
	return report
}

func quota(used, limit int64) Quota { return Quota{used, limit, average(100*used, limit)} }
