package server

import (
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/server/api"
)

const (
	// maxPeriod is the longest period of metrics: 400 days, because the store keeps hourly counts for that long.
	maxPeriod = usage.RetentionHours * time.Hour
	// lastYear is the last year that a period may include. The last hour, day, week or month may end in the next year, which must
	// still have four digits.
	lastYear = 9998
)

var (
	errDate = errors.New("must be an ISO 8601 time with a zone, such as 2026-01-01T00:00:00Z (in a URL, + is written %2B)")
	errYear = errors.New("must lie in the years 1 to 9998")
)

// getMetrics is GET /v1/analytics/metrics.
func (s *Server) getMetrics(c *gin.Context) (any, error) {
	period, err := queryPeriod(c)
	if err != nil {
		return nil, err
	}
	return s.Conversation.Metrics(c.Request.Context(), api.Owner(principal(c)), period)
}

// queryPeriod returns the period in the query. The granularity is a day unless the query names another granularity.
func queryPeriod(c *gin.Context) (conversation.Period, error) {
	period := conversation.Period{Granularity: usage.ByDay}
	for _, edge := range []struct {
		name string
		into *conversation.Time
	}{{"startDate", &period.Start}, {"endDate", &period.End}} {
		text, ok := c.GetQuery(edge.name)
		if !ok {
			return period, api.Invalid(edge.name, api.Required)
		}
		at, err := parseDate(text)
		if err != nil {
			return period, api.Invalid(edge.name, err.Error())
		}
		*edge.into = at
	}
	if text, ok := c.GetQuery("granularity"); ok {
		period.Granularity = usage.Granularity(text)
	}
	switch {
	case period.End <= period.Start:
		return period, api.Invalid("endDate", "must lie after startDate")
	case period.End > period.Start.Add(maxPeriod):
		return period, api.Invalid("endDate", "must lie at most 400 days after startDate")
	case !period.Granularity.Valid():
		return period, api.Invalid("granularity", "must be hour, day, week or month")
	}
	return period, nil
}

// parseDate parses an RFC 3339 time and truncates it to milliseconds.
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

// usageReport is the response of GET /v1/analytics/usage.
type usageReport struct {
	conversation.UsageReport
	Tier limit.Tier `json:"tier"`
	User *userUsage `json:"user,omitempty"` // only with ?userId=
}

// userUsage holds the usage of one user in the last minute.
type userUsage struct {
	UserID            string    `json:"userId"`
	RequestsPerMinute userLimit `json:"requestsPerMinute"`
	TokensPerMinute   userLimit `json:"tokensPerMinute"`
}

// userLimit is one limit of a user. Used is nil if the tier does not limit users to less than the account: the store then keeps
// no counts of users.
type userLimit struct {
	Used  *int `json:"used"`
	Limit int  `json:"limit"`
}

// getUsage is GET /v1/analytics/usage: the usage of the current calendar month (UTC).
func (s *Server) getUsage(c *gin.Context) (any, error) {
	p := principal(c)
	userID, err := queryID(c, "userId", conversation.UserPrefix)
	if err != nil {
		return nil, err
	}
	limits := auth.AdmissionOf(c.Request.Context()).Limits
	report, err := s.Conversation.UsageReport(c.Request.Context(), api.Owner(p), usage.Limits{
		Requests: limits.RequestsPerMonth, Tokens: limits.TokensPerMonth, EnforcedTokens: limits.EnforcedTokens(),
		Owned: usage.Owned{
			Sessions: limits.ActiveSessions, StoredBytes: limits.StoredBytes, Keys: limits.Keys, Sockets: limits.Sockets,
		},
	})
	if err != nil {
		return nil, err
	}
	user, err := s.userUsage(c, userID, limits)
	return usageReport{report, p.Tier, user}, err
}

// userUsage returns the usage of a user of the caller's account in the last minute. It returns nil if userID is "".
func (s *Server) userUsage(c *gin.Context, userID string, limits limit.TierLimits) (*userUsage, error) {
	if userID == "" {
		return nil, nil
	}
	used, err := s.Keys.UserUse(c.Request.Context(), principal(c).Owner(), userID)
	of := func(used, user, account int) userLimit {
		if user == 0 {
			return userLimit{nil, account}
		}
		return userLimit{&used, user}
	}
	return &userUsage{
		UserID:            userID,
		RequestsPerMinute: of(used.Requests, limits.UserRequests(), limits.RequestsPerMinute),
		TokensPerMinute:   of(used.Tokens, limits.UserTokens(), limits.TokensPerMinute),
	}, err
}
