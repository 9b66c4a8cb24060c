package redis

import (
	"context"
	"slices"
	"strconv"

	"parley/conversation"
	"parley/conversation/usage"
)

var getUsageScript = newScript("get_usage", admits|sessions|idempotent)

// Counts of usage are kept a day a hash, and that of a day that is over packed into a string (lua/usage.lua): a field is
// fieldsAnHour × the hour of the day and the usage.Field.
const fieldsAnHour = 512

// appendCounts appends the counts of a bucket to the arguments of a script.
func appendCounts(args []any, b *usage.Bucket) []any {
	for field, n := range b.All() {
		args = append(args, int(field), n)
	}
	return args
}

// Usage implements conversation.Store. It reads what is kept of each day, packs up to 32 of those that are over and were not
// packed, and reads, of the owner's sessions, how many expire in each hour.
func (s *Store) Usage(ctx context.Context, owner conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	tag := tagOfOwner(owner)
	reply, err := s.run(ctx, getUsageScript, tag, []string{expiryKey(tag)},
		int64(from), int64(to), usage.RetentionHours, conversation.Lifetime.Milliseconds())
	if err != nil {
		return conversation.UsageSpan{}, err
	}
	parts := list(reply)
	if len(parts) != 5 {
		return conversation.UsageSpan{}, getUsageScript.malformed()
	}
	used := conversation.UsageSpan{Now: usage.Hour(integer(parts[0])), Active: int(integer(parts[2]))}
	first, existing, days := usage.Hour(integer(parts[1])), list(parts[3]), list(parts[4])
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

// day is what was counted in the hours of a day.
type day struct {
	buckets [24]usage.Bucket
	counted [24]bool
}

// readDay returns the hours of a day in which something was counted: the counts of its hash, and those that are packed, which
// may be none. first is the day's first hour.
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

// add adds to a count; it reports whether there can be one of that field.
func (d *day) add(field int, n int64) bool {
	if field < 0 || field >= len(d.buckets)*fieldsAnHour {
		return false
	}
	d.buckets[field/fieldsAnHour].AddField(usage.Field(field%fieldsAnHour), n)
	d.counted[field/fieldsAnHour] = true
	return true
}

// addPacked adds counts that are packed, as pack of lua/usage.lua says: in MessagePack a list of numbers. It reports whether
// they are such.
func (d *day) addPacked(packed string) bool {
	r := reader{rest: packed}
	numbers := r.listLength()
	if numbers%2 != 0 {
		return false
	}
	field := 0
	for ; numbers > 0 && !r.bad; numbers -= 2 {
		field += int(min(max(r.number(), 0), int64(len(d.buckets)*fieldsAnHour))) // which add refuses
		if n := r.number(); !r.bad && !d.add(field, n) {
			return false
		}
	}
	return !r.bad && r.rest == ""
}

// listLength reads the beginning of a list of MessagePack.
func (r *reader) listLength() int {
	switch b := r.byte(); {
	case b&0xF0 == 0x90:
		return int(b & 0x0F)
	case b == 0xDC || b == 0xDD:
		return int(r.bigEndian(2 << (b - 0xDC)))
	}
	r.bad = true
	return 0
}

// number reads a whole number of MessagePack.
func (r *reader) number() int64 {
	switch b := r.byte(); {
	case b < 0x80 || b >= 0xE0: // in the byte itself
		return int64(int8(b))
	case 0xCC <= b && b <= 0xCF: // without a sign, of 1, 2, 4 or 8 bytes
		return int64(r.bigEndian(1 << (b - 0xCC)))
	case 0xD0 <= b && b <= 0xD3: // with one
		size := 1 << (b - 0xD0)
		unused := 64 - 8*size
		return int64(r.bigEndian(size)<<unused) >> unused
	}
	r.bad = true
	return 0
}

// bigEndian reads a number of so many bytes.
func (r *reader) bigEndian(size int) (n uint64) {
	for range size {
		n = n<<8 | uint64(r.byte())
	}
	return n
}
