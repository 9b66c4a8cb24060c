package storetest

import (
	"testing"

	"parley/auth/limit"
)

func dayTests() []test {
	return []test{
		{"an account that never made a test request has counted nothing", dayUnknown},
		{"of one day the higher count stays, of two the later day", dayCounts},
	}
}

func dayUnknown(t *testing.T, s *subject) {
	day, err := s.days.TestDay(s.ctx, s.owner.Account)
	must(t, err, "TestDay")
	same(t, "the day", day, limit.Day{})
}

func dayCounts(t *testing.T, s *subject) {
	for _, step := range []struct{ count, want limit.Day }{
		{limit.Day{Number: 5, Count: 1}, limit.Day{Number: 5, Count: 1}},
		{limit.Day{Number: 5, Count: 7}, limit.Day{Number: 5, Count: 7}},
		{limit.Day{Number: 5, Count: 3}, limit.Day{Number: 5, Count: 7}},
		{limit.Day{Number: 6, Count: 1}, limit.Day{Number: 6, Count: 1}},
		{limit.Day{Number: 5, Count: 9}, limit.Day{Number: 6, Count: 1}},
	} {
		must(t, s.days.CountTestDay(s.ctx, s.owner.Account, step.count), "CountTestDay")
		day, err := s.days.TestDay(s.ctx, s.owner.Account)
		must(t, err, "TestDay")
		same(t, "the day", day, step.want)
	}
	day, err := s.days.TestDay(s.ctx, s.owner.Account+" II")
	must(t, err, "TestDay")
	same(t, "another account's day", day, limit.Day{})
}
