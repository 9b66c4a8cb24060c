package usage

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func hourAt(t *testing.T, text string) Hour {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return HourOf(at.UnixMilli())
}

func TestHourOf_RoundsDown_HourAfterRoundsUp(t *testing.T) {
	for _, test := range []struct {
		at        int64
		of, after Hour
	}{
		{0, 0, 0}, {1, 0, 1}, {3_599_999, 0, 1}, {3_600_000, 1, 1}, {3_600_001, 1, 2},
		{-1, -1, 0}, {-3_600_000, -1, -1}, {-3_600_001, -2, -1},
	} {
		if of, after := HourOf(test.at), HourAfter(test.at); of != test.of || after != test.after {
			t.Errorf("%d ms: HourOf and HourAfter are %d and %d, want %d and %d", test.at, of, after, test.of, test.after)
		}
	}
}

// The test gives each field a different count. All must return the fields in order, each with its count.
func TestBucket_AddFieldThenAll_SameCounts(t *testing.T) {
	var b Bucket
	for f := range 2 * endField {
		b.AddField(f, int64(f)+1)
	}
	fields := slices.Collect(maps.Keys(maps.Collect(b.All())))
	if want := len(b.counters()) + 2*cells; len(fields) != want {
		t.Errorf("All returned %d fields, want %d", len(fields), want)
	}
	last := Field(0)
	for f, n := range b.All() {
		if f <= last || n != int64(f)+1 {
			t.Errorf("field %d comes after field %d and has the count %d", f, last, n)
		}
		last = f
	}
	twice := Bucket{}
	twice.Add(&b)
	twice.Add(&b)
	for f, n := range twice.All() {
		if n != 2*(int64(f)+1) {
			t.Errorf("after adding the bucket twice, field %d is %d", f, n)
		}
	}
	if len(b.counters()) >= int(firstTokenField) {
		t.Error("the counters overlap the fields of the histograms")
	}
	b.Reset()
	for f, n := range b.All() {
		t.Errorf("after Reset, field %d is %d", f, n)
	}
}

// Stores have written these field numbers, so they must not change.
func TestField_StoredNumbers_Unchanged(t *testing.T) {
	b := Bucket{
		Sessions: 1, SessionTime: 2, UserMessages: 3, AssistantMessages: 4, SystemMessages: 5, PromptTokens: 6,
		CompletionTokens: 7, Requests: 8, Completed: 9, Cancelled: 10, Failed: 11, Interrupted: 12,
	}
	b.FirstToken.Observe(0)
	b.FirstToken.Observe(100)
	b.Duration.Observe(1000)
	b.Duration.Observe(1 << 40)
	want := map[Field]int64{32: 1, 32 + 36: 1, 192 + 63: 1, 192 + 159: 1}
	for f := range Field(12) {
		want[f+1] = int64(f + 1)
	}
	if diff := cmp.Diff(want, maps.Collect(b.All())); diff != "" {
		t.Error(diff)
	}
}

func TestPercentile_RandomDurations_OffByLessThan16th(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		values := make([]int64, 1+random.IntN(200))
		var h, other Histogram
		for i := range values {
			values[i] = int64(random.ExpFloat64() * float64(int64(1)<<random.IntN(20)))
			values[i] = min(values[i], longest)
			if i%2 == 0 {
				h.Observe(values[i])
			} else {
				other.Observe(values[i])
			}
		}
		for _, c := range other { // merges the two histograms
			h.add(c.index, c.count)
		}
		slices.Sort(values)
		for _, p := range []int{1, 50, 95, 100} {
			exact := values[max(1, (len(values)*p+99)/100)-1]
			got, ok := h.Percentile(p)
			off := max(got-exact, exact-got)
			if !ok || 16*off >= max(exact, 1) && off != 0 || exact < 16 && off != 0 {
				t.Fatalf("percentile %d of %d values is %d, want %d", p, len(values), got, exact)
			}
		}
		if h.Count() != int64(len(values)) {
			t.Fatalf("Count is %d, want %d", h.Count(), len(values))
		}
	}
	if _, ok := Histogram(nil).Percentile(50); ok {
		t.Error("Percentile of an empty histogram returned true")
	}
}

func TestHistogram_NextMillisecond_InSameOrNextCell(t *testing.T) {
	last := uint8(0)
	for v := range int64(longest + 1) {
		index := indexOf(v)
		if index != last && index != last+1 || index >= cells {
			t.Fatalf("%d ms is in cell %d, but the previous millisecond is in cell %d", v, index, last)
		}
		if index != last || v == 0 {
			if middle := middleOf(index); indexOf(middle) != index || middle < v {
				t.Fatalf("the middle of the cell %d, which begins at %d, is %d", index, v, middle)
			}
		}
		last = index
	}
	if last != cells-1 || indexOf(longest+1) != last || indexOf(-1) != 0 {
		t.Errorf("the longest duration is in cell %d", last)
	}
}

func TestSeries_AnyGranularity_EntriesAdjoin(t *testing.T) {
	for name, test := range map[string]struct {
		from, to    string
		granularity Granularity
		want        []string // where the entries begin
	}{
		"hours": {"2026-02-28T22:00:00Z", "2026-03-01T01:00:00Z", ByHour, []string{"2026-02-28T22:00:00Z", "2026-02-28T23:00:00Z", "2026-03-01T00:00:00Z"}},
		"days of a leap year": {
			"2024-02-28T07:00:00Z", "2024-03-01T05:00:00Z", ByDay, []string{"2024-02-28T07:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"},
		},
		"weeks from a Sunday":    {"2026-03-01T00:00:00Z", "2026-03-10T00:00:00Z", ByWeek, []string{"2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"}},
		"weeks from a Monday":    {"2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z", ByWeek, []string{"2026-03-02T00:00:00Z"}},
		"weeks before 1970":      {"1969-12-27T00:00:00Z", "1970-01-06T00:00:00Z", ByWeek, []string{"1969-12-27T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"}},
		"months over a new year": {"2025-12-31T23:00:00Z", "2026-02-01T01:00:00Z", ByMonth, []string{"2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"}},
	} {
		from, to := hourAt(t, test.from), hourAt(t, test.to)
		var hours []Hourly
		for h := from; h < to; h++ {
			hours = append(hours, Hourly{Hour: h, Bucket: Bucket{Sessions: 1}, Existing: 1})
		}
		for _, hours := range [][]Hourly{hours, nil} {
			series := Series(hours, from, to, test.granularity)
			var begin []string
			end, sessions := from, int64(0)
			for _, e := range series {
				begin = append(begin, time.UnixMilli(e.From.Milliseconds()).UTC().Format(time.RFC3339))
				if e.From != end {
					t.Errorf("%s: an entry begins at %d, the previous entry ends at %d", name, e.From, end)
				}
				if want := int64(e.To - e.From); hours != nil && (e.Metrics.Sessions.Total != want || e.Metrics.Sessions.Active != want) {
					t.Errorf("%s: entry %+v should have %d sessions", name, e, want)
				}
				end, sessions = e.To, sessions+e.Metrics.Sessions.Total
			}
			if diff := cmp.Diff(test.want, begin); diff != "" || end != to || sessions != int64(len(hours)) {
				t.Errorf("%s: the series ends at %d, want %d, with %d sessions (-want +got):\n%s", name, end, to, sessions, diff)
			}
		}
	}
}

func TestMetricsOf_NoHours_Zero(t *testing.T) {
	if diff := cmp.Diff(Metrics{}, MetricsOf(nil)); diff != "" {
		t.Error(diff)
	}
	want := Report{Requests: Quota{Limit: 10}, Tokens: Quota{Limit: 20}, Sessions: SessionQuota{Limit: 30}}
	want.Quotas = Quotas{Keys: Quota{Limit: 50}, ActiveSessions: Quota{Limit: 30}, StoredBytes: Quota{Limit: 40}, Sockets: Quota{Limit: 60}}
	if diff := cmp.Diff(want, ReportOf(nil, Owned{}, Limits{10, 20, 0, Owned{30, 40, 50, 60}})); diff != "" {
		t.Error(diff)
	}
}

func TestMonth_AnyHour_BoundsOfCalendarMonth(t *testing.T) {
	for _, test := range []struct{ at, from, to string }{
		{"2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"2024-02-01T00:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
	} {
		from, to := Month(hourAt(t, test.at))
		if from != hourAt(t, test.from) || to != hourAt(t, test.to) {
			t.Errorf("the month of %s is from %d to %d", test.at, from, to)
		}
	}
}

func TestReportOf_UsageAndLimits_Percentages(t *testing.T) {
	hours := []Hourly{
		{Hour: 1, Bucket: Bucket{Requests: 30, PromptTokens: 100, CompletionTokens: 50}},
		{Hour: 2, Bucket: Bucket{Requests: 20, PromptTokens: 1000}},
	}
	got := ReportOf(hours, Owned{3, 10, 1, 6}, Limits{Requests: 200, Tokens: 1000, Owned: Owned{10, 1000, 4, 50}})
	want := Report{
		Requests: Quota{50, 200, 25}, Tokens: Quota{1150, 1000, 115}, Sessions: SessionQuota{3, 10, 30},
		Quotas: Quotas{Keys: Quota{1, 4, 25}, ActiveSessions: Quota{3, 10, 30}, StoredBytes: Quota{10, 1000, 1}, Sockets: Quota{6, 50, 12}},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	enforced := ReportOf(hours, Owned{}, Limits{EnforcedTokens: 4600}).Quotas.TokensPerMonth
	if enforced == nil || *enforced != (Quota{1150, 4600, 25}) {
		t.Errorf("if tokensPerMonth is enforced, its quota is %+v", enforced)
	}
	if got := ReportOf(nil, Owned{}, Limits{}); got != (Report{}) {
		t.Errorf("without hours or limits: %+v", got)
	}
}

func TestBucket_UnknownField_Ignored(t *testing.T) {
	var b Bucket
	for _, f := range []Field{0, 31, endField, endField + 1000} {
		b.AddField(f, 5)
	}
	for f := range b.All() {
		t.Errorf("unknown field %d was counted", f)
	}
	b.Sessions = 1
	b.FirstToken.Observe(7)
	b.Reset()
	for f := range b.All() {
		t.Errorf("after Reset, field %d is not empty", f)
	}
}
