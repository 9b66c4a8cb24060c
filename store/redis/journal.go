package redis

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/stream"
)

var journalScript = newScript("journal", idempotent)

// A node uses SETRANGE only if the journal exists for at least journalMargin more. That is longer than a write can take.
const journalMargin = 20 * time.Second

// journal tracks the journals that this node writes. The command SETRANGE writes text at an offset and costs Redis a third of
// a script. But on an expired key, SETRANGE would create a key that never expires. If BeginTurn creates a journal, or the
// script finds one, the journal exists for journalOutlives or, if earlier, until the session expires. Until journalMargin
// before that time, SETRANGE is safe.
//
// At other times the script writes the text, because the script checks that the journal exists: about every five minutes,
// near the session's expiry, after this process was suspended, and after an error.
type journal struct {
	mu    sync.Mutex
	known map[conversation.TurnKey]*journalled // guarded by mu
}

// journalled is a journal that this node writes.
type journalled struct {
	name  string    // static; name of the journal's key
	until time.Time // guarded by journal.mu; SETRANGE is safe before this time
	idle  *setRange // guarded by journal.mu; a command that no batch uses; nil if there is none
}

// setRange is the command SETRANGE for one journal. A journal's batches use the same command again, because a new command takes
// five allocations for a few bytes of text. A command cannot serve another journal: the go-redis client keeps the key's slot in it.
type setRange struct {
	*redis.IntCmd
	journal *journalled
	offset  int
	text    []byte
}

func newSetRange(k *journalled) *setRange {
	w := &setRange{journal: k}
	w.IntCmd = redis.NewIntCmd(context.Background(), "setrange", k.name, &w.offset, w)
	return w
}

// MarshalBinary returns the text. The go-redis client calls it for the last argument of the command.
func (w *setRange) MarshalBinary() ([]byte, error) { return w.text, nil }

// writeLocked returns a command that writes text at an offset. After the command has run, the caller must call release.
func (k *journalled) writeLocked(offset int, text []byte) *setRange {
	w := k.idle
	if k.idle = nil; w == nil {
		w = newSetRange(k)
	}
	w.SetErr(nil)
	w.offset, w.text = offset, text
	return w
}

// release makes commands of writeLocked ready for the next batch.
func (j *journal) release(writes []redis.Cmder) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, cmd := range writes {
		w := cmd.(*setRange)
		w.journal.idle, w.text = w, nil
	}
}

// atLocked returns the entry of a turn's journal. It adds the entry if it is missing.
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

// safe reports whether SETRANGE is safe at now. It compares the monotonic clock and the wall clock, because the monotonic clock
// stands still while the machine sleeps.
func (k *journalled) safe(now time.Time) bool {
	return now.Before(k.until) && now.Round(0).Before(k.until.Round(0))
}

// begun records that the journal of a turn exists, because the turn is live. The duration left is the time until the session
// expires. The time asked is before the script ran.
func (j *journal) begun(key *conversation.TurnKey, asked time.Time, left time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.atLocked(key).seen(asked, left)
}

// seen records the result of the journal script. The duration left is the time until the journal expires. It is 0 if the script
// wrote nothing, because the journal was missing or shorter than the offset. The time asked is before the script ran.
func (k *journalled) seen(asked time.Time, left time.Duration) {
	k.until = asked.Add(min(left, journalOutlives) - journalMargin)
}

// sweep removes the entries of journals that the script must check at the next write. That write adds the entry again.
func (j *journal) sweep(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, known := range j.known {
		if !known.safe(now) {
			delete(j.known, key)
		}
	}
}

// doubt makes the script check every journal at the journal's next write, because a fail-over may have lost journals.
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

// Journal implements conversation.Store, usually in one round trip. A second round trip is necessary if the script must check a
// journal. In a Cluster, wake-ups take another round trip. One command notifies a follower of all its sessions in the batch. If
// Journal fails, part of the batch may be written, and the caller must write the batch again.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	now := time.Now()
	writes := make([]redis.Cmder, 0, len(batch))
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
			writes = append(writes, known.writeLocked(segment.Offset, segment.Text))
		} else {
			checks = append(checks, call{journalScript, []string{known.name}, []any{segment.Offset, segment.Text}})
			checked = append(checked, known)
		}
		s.followers.appendWakeUps(wakeUps, segment.Key.SessionID, s.node, now)
	}
	s.journal.mu.Unlock()
	err := s.writeChecked(ctx, checks, checked, now)
	err = cmp.Or(err, s.write(ctx, writes, wakeUps)) // even after an error, because other servers of a Cluster may work
	s.journal.release(writes)
	if err != nil {
		s.journal.doubt()
	}
	return err
}

// writeChecked runs the journal script for checks, which writes the text if the journal reaches the offset. For each journal in
// checked, it records the expiry.
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

// write sends the text, and then the wake-ups: a follower that is woken must find the text. In a Cluster this takes two round
// trips, because a single pipeline goes to several servers in no fixed order.
func (s *Store) write(ctx context.Context, writes []redis.Cmder, wakeUps map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	pipe := s.db.Pipeline()
	_ = pipe.BatchProcess(ctx, writes...) // only queues the commands
	var failed error
	if s.clustered && len(writes) > 0 {
		_, failed = pipe.Exec(ctx)
	}
	for node, sessions := range wakeUps {
		pipe.Publish(ctx, inboxChannel(node), sessions)
	}
	_, err := pipe.Exec(ctx)
	return fault(cmp.Or(failed, err))
}
