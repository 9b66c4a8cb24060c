package conversation

import (
	"context"
	"time"

	"parley/conversation/usage"
)

// Period is the while that metrics are about: from Start up to and not including End.
type Period struct {
	Start       Time              `json:"start"`
	End         Time              `json:"end"`
	Granularity usage.Granularity `json:"granularity"`
}

// Metrics are an owner's figures of a period (spec: Metrics object).
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

// Metrics returns the figures of a period. Counts are kept by the hour, so those of an hour that the period only cuts
// into are in them whole.
func (s *Service) Metrics(ctx context.Context, owner Owner, period Period) (Metrics, error) {
	from, to := usage.HourOf(int64(period.Start)), usage.HourAfter(int64(period.End))
	used, err := s.Store.Usage(ctx, owner, from, to)
	if err != nil {
		return Metrics{}, err
	}
	series := usage.Series(used.Hours, from, to, period.Granularity)
	m := Metrics{Period: period, Metrics: usage.MetricsOf(used.Hours), Series: make([]MetricsEntry, len(series))}
	for i, entry := range series {
		m.Series[i] = MetricsEntry{Time(entry.From.Milliseconds()), Time(entry.To.Milliseconds()), entry.Metrics}
	}
	return m, nil
}

// UsageReport is what an owner has used of its limits in a billing period (spec: Usage object).
type UsageReport struct {
	BillingPeriod struct {
		Start Time `json:"start"`
		End   Time `json:"end"`
	} `json:"billingPeriod"`
	usage.Report
}

// UsageReport returns what an owner has used since the calendar month began (design section 2, usage report). Which month it
// is, the store's clock says, by which things are counted.
func (s *Service) UsageReport(ctx context.Context, owner Owner, limits usage.Limits) (UsageReport, error) {
	from, to := usage.Month(usage.HourOf(time.Now().UnixMilli()))
	used, err := s.Store.Usage(ctx, owner, from, to)
	for err == nil && (used.Now < from || used.Now >= to) { // around the month's end, the clocks differ
		from, to = usage.Month(used.Now)
		used, err = s.Store.Usage(ctx, owner, from, to)
	}
	if err != nil {
		return UsageReport{}, err
	}
	report := UsageReport{Report: usage.ReportOf(used.Hours, used.Active, limits)}
	report.BillingPeriod.Start, report.BillingPeriod.End = Time(from.Milliseconds()), Time(to.Milliseconds())
	return report, nil
}
