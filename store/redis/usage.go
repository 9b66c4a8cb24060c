package redis

import (
	"context"
	"slices"
	"strconv"

	"parley/conversation"
	"parley/conversation/usage"
)

var getUsageScript = newScript("get_usage", admits|sessions|idempotent)

// Counts of usage are kept a day a hash, so that a year is read by 366 commands (lua/usage.lua): a field is fieldsAnHour × the
// hour of the day and the usage.Field.
const fieldsAnHour = 512

// appendCounts appends the counts of a bucket to the arguments of a script.
func appendCounts(args []any, b *usage.Bucket) []any {
	for field, n := range b.All() {
		args = append(args, int(field), n)
	}
	return args
}

// Usage implements conversation.Store. It reads a hash for each day and, of the owner's sessions, how many expire in each
// hour.
func (s *Store) Usage(ctx context.Context, owner conversation.Owner, from, to usage.Hour) (conversation.Used, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getUsageScript, tag, []string{expiryKey(tag)},
		int64(from), int64(to), usage.Kept, conversation.Lifetime.Milliseconds())
	if err != nil {
		return conversation.Used{}, err
	}
	parts := list(reply)
	if len(parts) != 5 {
		return conversation.Used{}, getUsageScript.malformed()
	}
	used := conversation.Used{Now: usage.Hour(integer(parts[0])), Active: int(integer(parts[2]))}
	first, existing, days := usage.Hour(integer(parts[1])), list(parts[3]), list(parts[4])
	for i := 0; i+1 < len(days); i += 2 {
		hours, err := readDay(usage.Hour(24*integer(days[i])), list(days[i+1]))
		if err != nil {
			return conversation.Used{}, err
		}
		for _, h := range hours {
			if h.Hour >= max(from, first) && h.Hour < to {
				used.Hours = append(used.Hours, h)
			}
		}
	}
	for i := 0; i+1 < len(existing); i += 2 {
		hour := usage.Hour(integer(existing[i]))
		at, found := slices.BinarySearchFunc(used.Hours, hour, func(h usage.Hourly, hour usage.Hour) int { return int(h.Hour - hour) })
		if !found {
			used.Hours = slices.Insert(used.Hours, at, usage.Hourly{Hour: hour})
		}
		used.Hours[at].Existing = int(integer(existing[i+1]))
	}
	return used, nil
}

// readDay returns the hours of a day in which something was counted; first is the day's first.
func readDay(first usage.Hour, counts []any) ([]usage.Hourly, error) {
	var day [24]usage.Bucket
	var counted [24]bool
	for i := 0; i+1 < len(counts); i += 2 {
		field, err := strconv.Atoi(text(counts[i]))
		n, errCount := strconv.ParseInt(text(counts[i+1]), 10, 64)
		if err != nil || errCount != nil || field < 0 || field >= len(day)*fieldsAnHour {
			return nil, errRecord
		}
		day[field/fieldsAnHour].Count(usage.Field(field%fieldsAnHour), n)
		counted[field/fieldsAnHour] = true
	}
	var hours []usage.Hourly
	for i := range day {
		if counted[i] {
			hours = append(hours, usage.Hourly{Hour: first + usage.Hour(i), Bucket: day[i]})
		}
	}
	return hours, nil
}
