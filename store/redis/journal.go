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

const (
	// journalEndsAfter is how long the journal of a turn that has ended is kept, empty, for what is written late.
	journalEndsAfter = 5 * time.Minute
	// journalMargin is how long before its journal may expire at the earliest, text is no longer written without looking.
	journalMargin = 20 * time.Second
)

// journal is what this node knows of the journals that it writes. A command that writes at an offset is three times cheaper
// than a script, but it would make a key anew that has expired, for good. A journal, once seen, lives until its session
// expires, or for journalEndsAfter from the end of its turn on, if that is earlier; until shortly before, text
// is written without looking, and by a script that looks otherwise: at first, about every five minutes, at the end of the
// session's life, when this process has slept, and after an error.
type journal struct {
	mu    sync.Mutex
	known map[conversation.TurnKey]*journalled // guarded by mu
}

type journalled struct {
	name  string
	until time.Time // until when text may be written without looking
}

// at returns what is known of the turn's journal.
func (j *journal) at(key *conversation.TurnKey) *journalled {
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

// safe reports whether it is before until, by both of Go's clocks: one of them stands still while the machine sleeps.
func (k *journalled) safe(now time.Time) bool {
	return now.Before(k.until) && now.Round(0).Before(k.until.Round(0))
}

// seen notes that the journal, in a moment after asked, was to expire so much later.
func (k *journalled) seen(asked time.Time, left time.Duration) {
	k.until = asked.Add(min(left, journalEndsAfter) - journalMargin)
}

// sweep forgets what was not written lately.
func (j *journal) sweep(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, known := range j.known {
		if !known.safe(now) {
			delete(j.known, key)
		}
	}
}

// doubt has all journals looked at before they are written again: the server may be another, which knows less.
func (j *journal) doubt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, known := range j.known {
		known.until = time.Time{}
	}
}

// forget forgets the journal of a turn that has ended.
func (j *journal) forget(key conversation.TurnKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.known, key)
}

// Journal implements conversation.Store: in one trip, but for replies that are new. Other nodes that watch the sessions are
// poked, each by one command for all of them. What failed may be written in part; it is to be written again.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	now := time.Now()
	var writes []redis.Cmder
	var looks []call
	var looked []*journalled
	pokes := make(map[string][]byte)
	s.journal.mu.Lock()
	for i := range batch {
		segment := &batch[i]
		if len(segment.Text) == 0 {
			continue
		}
		known := s.journal.at(&segment.Key)
		if known.safe(now) {
			writes = append(writes, redis.NewIntCmd(ctx, "setrange", known.name, segment.Offset, segment.Text))
		} else {
			looks = append(looks, call{journalScript, []string{known.name}, []any{segment.Offset, segment.Text}})
			looked = append(looked, known)
		}
		s.viewers.poke(pokes, segment.Key.SessionID, s.node, now)
	}
	s.journal.mu.Unlock()
	err := s.look(ctx, looks, looked, now)
	if err == nil {
		err = s.write(ctx, writes, pokes)
	}
	if err != nil {
		s.journal.doubt()
	}
	return err
}

// look writes text by scripts, and notes what they saw.
func (s *Store) look(ctx context.Context, looks []call, looked []*journalled, asked time.Time) error {
	if len(looks) == 0 {
		return nil
	}
	replies, errs := s.runAll(ctx, looks)
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
			looked[i].seen(asked, time.Duration(left)*time.Millisecond)
		}
	}
	return failed
}

// write sends text, and then the pokes about it. A Cluster's servers do not keep that order within one trip.
func (s *Store) write(ctx context.Context, writes []redis.Cmder, pokes map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
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
	for node, sessions := range pokes {
		pipe.Publish(ctx, inboxChannel(node), sessions)
	}
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	return fault(err)
}
