package redis

import (
	"context"
	"errors"

	"parley/conversation"
)

var endOrphanScript = newScript("end_orphan", durable)

// endOrphans ends turns in two round trips to each server. The first round trip reads the texts of the replies, so that this
// process can count their tokens. The second round trip ends the turns. endOrphans returns the number of turns that it ended.
func (s *Store) endOrphans(ctx context.Context, orphans []orphan, count func(text string) int) (int, error) {
	if len(orphans) == 0 {
		return 0, nil
	}
	found, errs := s.findOrphans(ctx, orphans)
	var ends []call
	for i, reply := range found {
		if errs[i] != nil || reply == nil {
			continue
		}
		ending, fence, err := orphans[i].interrupted(reply, count)
		if err != nil {
			errs[i] = err
			continue
		}
		ends = append(ends, call{endOrphanScript, []string{orphans[i].key()}, endingOf(fence, &ending, conversation.Timing{})})
	}
	if len(ends) == 0 {
		return 0, errors.Join(errs...)
	}
	replies, endErrs := s.runAll(ctx, ends)
	ended := 0
	for _, reply := range replies {
		if integer(reply) == 1 {
			ended++
		}
	}
	return ended, errors.Join(append(errs, endErrs...)...)
}
