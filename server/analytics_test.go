package server_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"parley/auth"
)

// metrics makes the request GET /v1/analytics/metrics with these query parameters.
func (p *parley) metrics(query map[string]string, headers ...string) answer {
	p.t.Helper()
	values := url.Values{}
	for name, value := range query {
		values.Set(name, value)
	}
	return p.call("GET", "/v1/analytics/metrics?"+values.Encode(), nil, headers...)
}

// at returns the value at a path of a response's body, such as "sessions.total". It returns nil if there is no value.
func at(body map[string]any, path string) any {
	var value any = body
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

func TestAnalytics_AfterTwoReplies_FiguresMatch(t *testing.T) {
	p := start(t, echo)
	session := p.session()
	p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "hello", "role": "system"})
	p.must("POST", "/v1/sessions/"+session+"/messages", map[string]any{"content": "and now?"})
	p.must("DELETE", "/v1/sessions/"+p.session(), nil)
	used := p.must("GET", "/v1/sessions/"+session, nil)["tokenUsage"].(map[string]any)

	now := time.Now().UTC()
	query := map[string]string{
		"startDate": now.Add(-time.Hour).In(time.FixedZone("", 2*3600)).Format(time.RFC3339),
		"endDate":   now.Add(time.Hour).Format(time.RFC3339Nano), "granularity": "hour",
	}
	a := p.metrics(query)
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.raw)
	}
	for path, want := range map[string]any{
		"period.start": now.Add(-time.Hour).Format("2006-01-02T15:04:05") + ".000Z", "period.granularity": "hour",
		"period.end":     now.Add(time.Hour).Format("2006-01-02T15:04:05.000Z"),
		"sessions.total": 2.0, "sessions.active": 1.0,
		"messages.total": 4.0, "messages.averagePerSession": 2.0, "messages.userMessages": 1.0, "messages.assistantMessages": 2.0,
		"tokens.total": used["total"], "tokens.prompt": used["prompt"], "tokens.completion": used["completion"],
		"tokens.averagePerMessage": used["total"].(float64) / 4,
		"replies.completed":        2.0, "replies.cancelled": 0.0, "replies.failed": 0.0, "replies.interrupted": 0.0,
	} {
		if got := at(a.body, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	if p50, _ := at(a.body, "firstToken.p50").(float64); p50 < 1 {
		t.Errorf("firstToken is %v", a.body["firstToken"])
	}
	series := a.body["series"].([]any)
	total, until := 0.0, now.Add(-time.Hour).Truncate(time.Hour)
	for _, one := range series {
		entry := one.(map[string]any)
		total += at(entry, "messages.total").(float64)
		if entry["start"] != until.Format("2006-01-02T15:04:05.000Z") {
			t.Errorf("an entry begins at %v, want %v", entry["start"], until)
		}
		until = until.Add(time.Hour)
	}
	if total != 4 || until.Before(now.Add(time.Hour)) {
		t.Errorf("the series has %v messages and ends at %v", total, until)
	}

	usage := p.must("GET", "/v1/analytics/usage", nil)
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for path, want := range map[string]any{
		"billingPeriod.start": month.Format("2006-01-02T15:04:05.000Z"),
		"billingPeriod.end":   month.AddDate(0, 1, 0).Format("2006-01-02T15:04:05.000Z"),
		"requests.used":       8.0, // includes this request
		"requests.limit":      500_000.0, "tokens.used": used["total"], "tokens.limit": 50_000_000.0,
		"tokens.percentage": used["total"].(float64) / 500_000, "sessions.active": 1.0, "sessions.limit": 5_000.0,
		"sessions.percentage": 0.02, "tier": "pro",
	} {
		if got := at(usage, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestAnalytics_PeriodOrGranularityInvalid_400(t *testing.T) {
	p := start(t, echo)
	const first, second = "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"
	for name, test := range map[string]struct {
		start, end, granularity string // "-" omits the parameter
		field                   string // the error's field; "" if the request is valid
	}{
		"start missing":             {"-", second, "-", "startDate"},
		"end missing":               {first, "-", "-", "endDate"},
		"start empty":               {"", second, "-", "startDate"},
		"date without time":         {"2026-03-01", second, "-", "startDate"},
		"time zone missing":         {first, "2026-03-02T00:00:00", "-", "endDate"},
		"space instead of plus":     {"2026-03-01T00:00:00 02:00", second, "-", "startDate"},
		"30 February":               {"2026-02-30T00:00:00Z", second, "-", "startDate"},
		"Unix seconds":              {"1772323200", second, "-", "startDate"},
		"end before start":          {second, first, "-", "endDate"},
		"end equals start":          {first, first, "-", "endDate"},
		"shorter than 1 ms":         {first, "2026-03-01T00:00:00.0009Z", "-", "endDate"},
		"valid: 400 days":           {"2025-01-01T00:00:00Z", "2026-02-05T00:00:00Z", "-", ""},
		"400 days and 1 ms":         {"2025-01-01T00:00:00Z", "2026-02-05T00:00:00.001Z", "-", "endDate"},
		"unknown granularity":       {first, second, "minute", "granularity"},
		"granularity empty":         {first, second, "", "granularity"},
		"granularity capitalised":   {first, second, "Day", "granularity"},
		"start in the year 0 (UTC)": {"0001-01-01T00:00:00+01:00", "0001-01-02T00:00:00Z", "-", "startDate"},
		"end in the year 9999":      {"9998-12-01T00:00:00Z", "9999-01-01T00:00:00Z", "-", "endDate"},
		"valid: the year 1":         {"0001-01-01T00:00:00Z", "0001-01-02T00:00:00Z", "week", ""},
		"valid: the year 9998":      {"9998-12-30T00:00:00Z", "9998-12-31T23:59:59.999Z", "month", ""},
		"valid: no granularity":     {first, second, "-", ""},
	} {
		t.Run(name, func(t *testing.T) {
			query := map[string]string{"startDate": test.start, "endDate": test.end, "granularity": test.granularity}
			for parameter, value := range query {
				if value == "-" {
					delete(query, parameter)
				}
			}
			a := p.metrics(query)
			switch field := at(a.body, "error.field"); {
			case test.field == "" && a.status != 200:
				t.Errorf("%d %s", a.status, a.raw)
			case test.field != "" && (a.status != 400 || field != test.field || at(a.body, "error.code") != "validation_error"):
				t.Errorf("%d %s, want 400 with the field %s", a.status, a.raw, test.field)
			}
		})
	}
}

func TestAnalytics_OtherAccountOrMode_NotCounted(t *testing.T) {
	p := start(t, echo)
	p.session()
	_, test := p.newKey("default", auth.Test, auth.NewKey{Name: "a key", Scopes: []auth.Scope{auth.ReadAnalytics}})
	for _, secret := range []string{p.key("other", auth.ReadAnalytics), test} {
		query := map[string]string{
			"startDate": time.Now().Add(-time.Hour).Format(time.RFC3339), "endDate": time.Now().Add(time.Hour).Format(time.RFC3339),
		}
		a := p.metrics(query, "Authorization", "Bearer "+secret)
		if total := at(a.body, "sessions.total"); a.status != 200 || total != 0.0 || at(a.body, "firstToken.p50") != nil {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if a := p.call("GET", "/v1/analytics/usage", nil, "Authorization", "Bearer "+secret); a.status != 200 || at(a.body, "sessions.active") != 0.0 {
			t.Errorf("%d %s", a.status, a.raw)
		}
	}
}
