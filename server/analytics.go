package server

import (
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
)

const (
	// maxPeriod is the longest that metrics can be asked for: as long as counts are kept.
	maxPeriod = usage.RetentionHours * time.Hour
	// lastYear is the last that a period may begin or end in, so that what lies around it can be written as a date.
	lastYear = 9998
)

var (
	errDate = errors.New("must be an ISO 8601 time with a zone, such as 2026-01-01T00:00:00Z (in a URL, + is written %2B)")
	errYear = errors.New("must lie in the years 1 to 9998")
)

// getMetrics is GET /v1/analytics/metrics (spec: Get Metrics).
func (s *Server) getMetrics(c *gin.Context) (any, error) {
	period, err := queryPeriod(c)
	if err != nil {
		return nil, err
	}
	return s.Conversation.Metrics(c.Request.Context(), owner(principal(c)), period)
}

// queryPeriod returns the period that the query names.
func queryPeriod(c *gin.Context) (conversation.Period, error) {
	period := conversation.Period{Granularity: usage.ByDay}
	for _, edge := range []struct {
		name string
		into *conversation.Time
	}{{"startDate", &period.Start}, {"endDate", &period.End}} {
		text, ok := c.GetQuery(edge.name)
		if !ok {
			return period, invalid(edge.name, missing)
		}
		at, err := parseDate(text)
		if err != nil {
			return period, invalid(edge.name, err.Error())
		}
		*edge.into = at
	}
	if text, ok := c.GetQuery("granularity"); ok {
		period.Granularity = usage.Granularity(text)
	}
	switch {
	case period.End <= period.Start:
		return period, invalid("endDate", "must lie after startDate")
	case period.End > period.Start.Add(maxPeriod):
		return period, invalid("endDate", "must lie at most 400 days after startDate")
	case !period.Granularity.Valid():
		return period, invalid("granularity", "must be hour, day, week or month")
	}
	return period, nil
}

// parseDate reads a moment, cut to the millisecond.
func parseDate(text string) (conversation.Time, error) {
	var at time.Time
	if err := at.UnmarshalText([]byte(text)); err != nil {
		return 0, errDate
	}
	if year := at.UTC().Year(); year < 1 || year > lastYear {
		return 0, errYear
	}
	return conversation.TimeOf(at), nil
}

// usageReport is a usage report as it is answered.
type usageReport struct {
	conversation.UsageReport
	Tier limit.Tier `json:"tier"`
}

// getUsage is GET /v1/analytics/usage (spec: Get Usage).
func (s *Server) getUsage(c *gin.Context) (any, error) {
	p := principal(c)
	figures := auth.AdmissionOf(c.Request.Context()).Limits
	report, err := s.Conversation.UsageReport(c.Request.Context(), owner(p), usage.Limits{
		Requests: figures.RequestsPerMonth, Tokens: figures.TokensPerMonth, Sessions: figures.ActiveSessions,
	})
	if err != nil {
		return nil, err
	}
	return usageReport{report, p.Tier}, nil
}
