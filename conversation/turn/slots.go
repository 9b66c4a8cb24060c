package turn

import (
	"sync"

	"parley/conversation"
)

// Slot counts one send as in flight on this node: from TakeSlot until its receiver has called Release and the turn of
// the send, if any, is over. The methods may be called from any goroutine.
type Slot struct {
	// static
	slots *slots
	send  sendKey

	holds int // guarded by slots.mu; the slot is free when nobody holds it
}

// sendKey identifies a send and its repeats with the same Idempotency-Key.
type sendKey struct {
	owner        conversation.Owner
	session, key string // key is "" if the send has no Idempotency-Key
}

// shareOfFree bounds the slots of one owner: an owner with more than shareOfFree times the free slots gets no further
// slot. So one owner gets at most three quarters of the slots, and two owners get three sevenths each. Free slots always
// remain for an owner that has none, if the limit is at least 4.
const shareOfFree = 3

// slots counts the sends in flight on this node.
type slots struct {
	limit int // static; 0 for no limit

	mu     sync.Mutex
	taken  int                        // guarded by mu
	owners map[conversation.Owner]int // guarded by mu; without owners that have no slot
	sends  map[sendKey]int            // guarded by mu; slots of the sends that have an Idempotency-Key
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, owners: make(map[conversation.Owner]int), sends: make(map[sendKey]int)}
}

// TakeSlot admits a send to this node, before any work is done for it. key is the Idempotency-Key of the send; nil for
// none. The receiver of the Slot must call Release. The error is ErrDraining, ErrInflightLimit or ErrInflightShare.
//
// A repeat of a send that is in flight is admitted although no slot is free, because it only waits for the same reply.
// Only one repeat of a send at a time is admitted so. Thus the sends in flight are at most twice the limit.
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

// Release ends one hold of the slot. The receiver of the Slot calls it once.
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

// decrement decrements a count of a map without zeros.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
