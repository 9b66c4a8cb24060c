package turn

import (
	"sync"

	"parley/conversation"
)

// Slot counts one send as in flight on this node: from TakeSlot until the caller of TakeSlot has called Release, and
// the turn of the send, if any, is over. The methods may be called from any goroutine.
type Slot struct {
	// static
	slots *slots
	send  sendKey

	holds int // guarded by slots.mu; the number of holders; at 0, the slot is free
}

// sendKey identifies a send and its repeats with the same Idempotency-Key.
type sendKey struct {
	owner        conversation.Owner
	session, key string // key is "" if the send has no Idempotency-Key
}

// shareOfFree bounds the slots of one owner. An owner gets no further slot if it has at least shareOfFree times as many
// slots as are free. So one owner gets at most three quarters of the slots, and two owners get three sevenths each. If
// the limit is at least 4, one owner cannot take all slots.
const shareOfFree = 3

// slots counts the sends in flight on this node.
type slots struct {
	limit int // static; 0 for no limit

	mu     sync.Mutex
	taken  int                        // guarded by mu
	owners map[conversation.Owner]int // guarded by mu; without owners that have no slot
	sends  map[sendKey]int            // guarded by mu; the number of slots of each send that has an Idempotency-Key
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, owners: make(map[conversation.Owner]int), sends: make(map[sendKey]int)}
}

// TakeSlot admits a send to this node, before any work is done for it. key is the Idempotency-Key of the send; nil for
// none. The receiver of the Slot must call Release. The error is ErrDraining, ErrInflightLimit or ErrInflightShare.
//
// A repeat of a send that is in flight is admitted although no slot is free, because it only waits for the same reply.
// Only one repeat of a send at a time is admitted in this way, so the sends in flight are at most twice the limit.
func (t *Turns) TakeSlot(owner conversation.Owner, sessionID string, key *string) (*Slot, error) {
	select {
	case <-t.draining:
		return nil, conversation.ErrDraining
	default:
	}
	send := sendKey{owner: owner, session: sessionID}
	if key != nil {
		send.key = *key
	}
	return t.slots.take(send)
}

// InFlight returns the number of sends in flight on this node.
func (t *Turns) InFlight() int {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	return t.slots.taken
}

func (s *slots) take(send sendKey) (*Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isRepeat := send.key != "" && s.sends[send] == 1; !isRepeat && s.limit > 0 {
		free := s.limit - s.taken
		switch {
		case free <= 0:
			return nil, conversation.ErrInflightLimit
		case s.owners[send.owner] >= shareOfFree*free:
			return nil, conversation.ErrInflightShare
		}
	}
	slot := &Slot{slots: s, send: send, holds: 1}
	s.taken++
	s.owners[send.owner]++
	if send.key != "" {
		s.sends[send]++
	}
	return slot, nil
}

// hold keeps the slot taken until another Release.
func (s *Slot) hold() {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.holds++
}

// Release ends one hold of the slot. The caller of TakeSlot must call Release once.
func (s *Slot) Release() {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	if s.holds--; s.holds > 0 {
		return
	}
	s.slots.taken--
	decrement(s.slots.owners, s.send.owner)
	if s.send.key != "" {
		decrement(s.slots.sends, s.send)
	}
}

// decrement decrements the count of key, and removes the key when its count is 0.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
