package usage

import "time"

// Figures are what happened in a while (spec: Metrics object; design section 2, metrics). Averages are 0 where there is
// nothing to divide by.
type Metrics struct {
	Sessions struct {
		Total           int64   `json:"total"`           // created in the while
		Active          int64   `json:"active"`          // those of them that still exist
		AverageDuration float64 `json:"averageDuration"` // seconds from createdAt to lastActivity, over Total
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
	// FirstToken is how long the first text of replies took, in milliseconds; null if none had any.
	FirstToken struct {
		P50 *int64 `json:"p50"`
		P95 *int64 `json:"p95"`
	} `json:"firstToken"`
}

// FiguresOf returns the figures of some hours together.
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

// Granularity is the unit of a series, by the UTC calendar.
type Granularity string

// The granularities (spec: Get Metrics); ByDay is the default.
const (
	ByHour  Granularity = "hour"
	ByDay   Granularity = "day"
	ByWeek  Granularity = "week" // from Monday on
	ByMonth Granularity = "month"
)

// Valid reports whether there is such a granularity.
func (g Granularity) Valid() bool {
	return g == ByHour || g == ByDay || g == ByWeek || g == ByMonth
}

// next returns when the unit that holds an hour is over.
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

// Entry is one unit of a series, or what lies within the series of its first and last.
type Entry struct {
	From, To Hour // To is not included
	Metrics  Metrics
}

// Series returns the figures of the hours from from on, up to and not including to, unit by unit: the empty ones too.
// hours are in their order and lie between these.
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

// Month returns the calendar month that holds an hour: from its first to that of the next month.
func Month(h Hour) (from, to Hour) {
	year, month, _ := time.UnixMilli(h.Milliseconds()).UTC().Date()
	return HourOf(time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).UnixMilli()), ByMonth.next(h)
}

// Limits are what an owner's tier has for a calendar month. They are reported, not enforced.
type Limits struct {
	Requests, Tokens int64
	Sessions         int64 // that are active at a time
}

// Standing is how an owner stands towards these (spec: Usage object). Percentages go over 100.
type Report struct {
	Requests Quota        `json:"requests"`
	Tokens   Quota        `json:"tokens"`
	Sessions SessionQuota `json:"sessions"`
}

// Used is what was used of a limit.
type Quota struct {
	Used       int64   `json:"used"`
	Limit      int64   `json:"limit"`
	Percentage float64 `json:"percentage"`
}

// Active is how many sessions exist of those that may.
type SessionQuota struct {
	Active     int64   `json:"active"`
	Limit      int64   `json:"limit"`
	Percentage float64 `json:"percentage"`
}

// StandingOf returns how an owner stands that has used those hours and has so many sessions.
func ReportOf(hours []Hourly, active int, limits Limits) Report {
	var requests, tokens int64
	for i := range hours {
		b := &hours[i].Bucket
		requests += b.Requests
		tokens += b.PromptTokens + b.CompletionTokens
	}
	return Report{
		Requests: Quota{requests, limits.Requests, average(100*requests, limits.Requests)},
		Tokens:   Quota{tokens, limits.Tokens, average(100*tokens, limits.Tokens)},
		Sessions: SessionQuota{int64(active), limits.Sessions, average(100*int64(active), limits.Sessions)},
	}
}
