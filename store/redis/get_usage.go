package redis

import (
	"context"
	"slices"
	"strconv"

	"parley/conversation"
	"parley/conversation/usage"
)

var getUsageScript = newScript("get_usage", admits|idempotent)

// appendCounts appends the counts of a bucket to the arguments of a script: field, count, field, count, …
func appendCounts(args []any, b *usage.Bucket) []any {
	for field, n := range b.All() {
		args = append(args, int(field), n)
	}
	return args
}

// Usage implements conversation.Store. It reads the counts of each day (lua/lib/usage.lua). For each hour, it also reads how many
// of the sessions created in that hour still exist. The script packs up to daysPackedByRead days before yesterday.
func (s *Store) Usage(ctx context.Context, owner conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getUsageScript, tag, []string{expiryKey(tag)},
		int64(from), int64(to), usage.RetentionHours, conversation.Lifetime.Milliseconds())
	if err != nil {
		return conversation.UsageSpan{}, err
	}
	parts := list(reply)
	if len(parts) != 8 {
		return conversation.UsageSpan{}, getUsageScript.malformed()
	}
	used := conversation.UsageSpan{
		Now: usage.Hour(integer(parts[0])), Active: int(integer(parts[2])), Keys: integer(parts[3]), StoredBytes: integer(parts[4]),
		Sockets: integer(parts[5]),
	}
	first, existing, days := usage.Hour(integer(parts[1])), list(parts[6]), list(parts[7])
	for i := 0; i+2 < len(days); i += 3 {
		hours, err := readDay(usage.Hour(24*integer(days[i])), list(days[i+1]), text(days[i+2]))
		if err != nil {
			return conversation.UsageSpan{}, err
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

// day holds the counts of each hour of a day.
type day struct {
	buckets [24]usage.Bucket
	counted [24]bool
}

// readDay returns the hours of a day that have counts. It adds up the counts of the day's hash and the packed counts; packed is
// "" if the day has none. first is the day's first hour.
func readDay(first usage.Hour, counts []any, packed string) ([]usage.Hourly, error) {
	var d day
	if packed != "" && !d.addPacked(packed) {
		return nil, errRecord
	}
	for i := 0; i+1 < len(counts); i += 2 {
		field, err := strconv.Atoi(text(counts[i]))
		n, errCount := strconv.ParseInt(text(counts[i+1]), 10, 64)
		if err != nil || errCount != nil || !d.add(field, n) {
			return nil, errRecord
		}
	}
	var hours []usage.Hourly
	for i := range d.buckets {
		if d.counted[i] {
			hours = append(hours, usage.Hourly{Hour: first + usage.Hour(i), Bucket: d.buckets[i]})
		}
	}
	return hours, nil
}

// add adds n to the count of a field. It reports whether the field is valid.
func (d *day) add(field int, n int64) bool {
	if field < 0 || field >= len(d.buckets)*fieldsAnHour {
		return false
	}
	d.buckets[field/fieldsAnHour].AddField(usage.Field(field%fieldsAnHour), n)
	d.counted[field/fieldsAnHour] = true
	return true
}

// addPacked adds packed counts, a MessagePack list of numbers (pack_day in lua/lib/usage.lua). It reports whether packed is
// valid.
func (d *day) addPacked(packed string) bool {
	r := packedReader{rest: packed}
	numbers := r.listLength()
	if numbers%2 != 0 {
		return false
	}
	field := 0
	for ; numbers > 0 && !r.bad; numbers -= 2 {
		// min prevents an overflow; add refuses a field that is too large.
		field += int(min(max(r.number(), 0), int64(len(d.buckets)*fieldsAnHour)))
		if n := r.number(); !r.bad && !d.add(field, n) {
			return false
		}
	}
	return !r.bad && r.rest == ""
}
