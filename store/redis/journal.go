package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/stream"
)

var journalScript = newScript("journal", idempotent)

// From journalMargin before its earliest possible expiry, a journal is written by the script: longer than a write can take.
const journalMargin = 20 * time.Second

// journal tracks the journals that this node writes. The command SETRANGE writes text at an offset and costs Redis a third of a
// script, but it would create an expired key again, without expiry. Once the script has found a journal, the journal exists until
// its session expires or, if earlier, until journalOutlives after its turn has ended. Until journalMargin before that, SETRANGE
// is safe. Otherwise the script writes, which checks that the journal exists: the first time, about every five minutes, near the
// session's expiry, after this process was suspended, and after an error.
type journal struct {
	mu    sync.Mutex
	known map[conversation.TurnKey]*journalled // guarded by mu
}

type journalled struct {
	name  string
	until time.Time // SETRANGE is safe before this time
}

// atLocked returns the entry of a turn's journal, and adds one if there is none.
func (j *journal) atLocked(key *conversation.TurnKey) *journalled {
	known := j.known[*key]
	if known == nil {
		known = &journalled{name: journalKey(tagOfOwner(key.Owner), key.SessionID, key.Fence)}
		if j.known == nil {
			j.known = make(map[conversation.TurnKey]*journalled)
		}
		j.known[*key] = known
	}
	return known
}

// safe reports whether SETRANGE is safe by both of Go's clocks: the monotonic clock stands still while the machine sleeps.
func (k *journalled) safe(now time.Time) bool {
	return now.Before(k.until) && now.Round(0).Before(k.until.Round(0))
}

// seen stores that the journal existed at some time after asked, and had the lifetime left then.
func (k *journalled) seen(asked time.Time, left time.Duration) {
	k.until = asked.Add(min(left, journalOutlives) - journalMargin)
}

// sweep forgets the journals that the script must check next. A live one is added again by its next write.
func (j *journal) sweep(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, known := range j.known {
		if !known.safe(now) {
			delete(j.known, key)
		}
	}
}

// doubt makes the script check every journal at its next write: a fail-over may have lost some of them.
func (j *journal) doubt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, known := range j.known {
		known.until = time.Time{}
	}
}

// forget removes the entry of a turn that has ended.
func (j *journal) forget(key conversation.TurnKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.known, key)
}

// Journal implements conversation.Store, in one round trip. It takes one more if the script must check a journal, as for a new
// reply, and one more in a Cluster if it notifies followers. One command notifies a follower of all its sessions. If Journal
// fails, part of the batch may be written, and the caller writes the batch again.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	now := time.Now()
	var writes []redis.Cmder
	var checks []call
	var checked []*journalled
	wakeUps := make(map[string][]byte)
	s.journal.mu.Lock()
	for i := range batch {
		segment := &batch[i]
		if len(segment.Text) == 0 {
			continue
		}
		known := s.journal.atLocked(&segment.Key)
		if known.safe(now) {
			writes = append(writes, redis.NewIntCmd(ctx, "setrange", known.name, segment.Offset, segment.Text))
		} else {
			checks = append(checks, call{journalScript, []string{known.name}, []any{segment.Offset, segment.Text}})
			checked = append(checked, known)
		}
		s.followers.appendWakeUps(wakeUps, segment.Key.SessionID, s.node, now)
	}
	s.journal.mu.Unlock()
	err := s.writeChecked(ctx, checks, checked, now)
	if err == nil {
		err = s.write(ctx, writes, wakeUps)
	}
	if err != nil {
		s.journal.doubt()
	}
	return err
}

// writeChecked writes text by the script, and stores when the journals expire.
func (s *Store) writeChecked(ctx context.Context, checks []call, checked []*journalled, asked time.Time) error {
	if len(checks) == 0 {
		return nil
	}
	replies, errs := s.runAll(ctx, checks)
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	var failed error
	for i, err := range errs {
		left, ok := replies[i].(int64)
		switch {
		case err != nil:
			failed = err
		case !ok:
			failed = journalScript.malformed()
		default:
			checked[i].seen(asked, time.Duration(left)*time.Millisecond)
		}
	}
	return failed
}

// write sends the text, and then the wake-ups. In a Cluster this takes two round trips, because different servers would not keep
// the order.
func (s *Store) write(ctx context.Context, writes []redis.Cmder, wakeUps map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pipe := s.db.Pipeline()
	for _, write := range writes {
		_ = pipe.Process(ctx, write) // queues it
	}
	if s.clustered && len(writes) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return fault(err)
		}
	}
	for node, sessions := range wakeUps {
		pipe.Publish(ctx, inboxChannel(node), sessions)
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return fault(err)
}
