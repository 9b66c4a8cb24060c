package embedded

import (
	"context"
	"encoding/binary"

	"parley/auth/limit"
)

// TestDay implements auth.DayStore.
func (s *Store) TestDay(ctx context.Context, account string) (day limit.Day, err error) {
	err = s.view(ctx, func(r *reading) (err error) {
		day, err = r.day(account)
		return err
	})
	return day, err
}

// CountTestDay implements auth.DayStore.
func (s *Store) CountTestDay(ctx context.Context, account string, day limit.Day) error {
	return s.submit(ctx, func(w *writing) error {
		last, err := w.day(account)
		if err != nil {
			return err
		}
		if last.Number > day.Number || last.Number == day.Number && last.Count >= day.Count {
			return nil
		}
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 16), uint64(day.Number))
		return w.put(daysBucket, []byte(account), binary.BigEndian.AppendUint64(value, uint64(day.Count)))
	})
}

func (r *reading) day(account string) (limit.Day, error) {
	value := r.bucket(daysBucket).Get([]byte(account))
	switch len(value) {
	case 0:
		return limit.Day{}, nil
	case 16:
		return limit.Day{
			Number: int64(binary.BigEndian.Uint64(value)), Count: int(binary.BigEndian.Uint64(value[8:])),
		}, nil
	}
	return limit.Day{}, errRecord
}
