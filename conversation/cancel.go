package conversation

import (
	"context"
	"time"

	"parley/stream"
)

// awaitTurn returns the turn of a reply that the store called live a moment ago, or nil if it has ended since. A turn
// that has only just begun is waited for, so that nothing slips through between the store and this node.
func (s *Service) awaitTurn(sessionID, messageID string) *turn {
	if messageID == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turns[messageID] == nil && s.beginning[sessionID] > 0 {
		s.begins.Wait()
	}
	return s.turns[messageID]
}

// isBeginning reports whether a turn of the session may be about to join those that are live here.
func (s *Service) isBeginning(sessionID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beginning[sessionID] > 0
}

// interrupt cancels the reply that the store called live a moment ago; it does not wait for its end.
func (s *Service) interrupt(sessionID, messageID string, cause error) {
	if t := s.awaitTurn(sessionID, messageID); t != nil {
		t.cancel(cause)
	}
}

// stop cancels the turn and reports whether it has ended in time, the model's request closed.
func (t *turn) stop(cause error) bool {
	t.cancel(cause)
	late := time.NewTimer(cancelWait)
	defer late.Stop()
	select {
	case <-t.done:
		return true
	case <-late.C:
		return false
	}
}

// Cancel stops a reply and returns it as it ended, once the model's request is closed. A reply that has ended already,
// and any other message, is returned as it is. ErrCancelPending says that it has not stopped in time; the cancel stays
// wanted.
func (s *Service) Cancel(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error) {
	m, err := s.stopReply(ctx, owner, sessionID, messageID)
	if err != nil || m.Status != stream.Streaming {
		return m, err
	}
	if t := s.awaitTurn(sessionID, messageID); t != nil {
		if !t.stop(stream.ErrCancelled) {
			return Message{}, ErrCancelPending
		}
		return t.final, t.err
	}
	if s.Nodes != nil {
		ctx, cancel := context.WithTimeoutCause(ctx, cancelWait, ErrCancelPending)
		defer cancel()
		m, err := s.awaitEnd(ctx, owner, sessionID, messageID)
		return m, orCause(ctx, err)
	}
	m, err = s.Store.Message(ctx, owner, sessionID, messageID) // it has ended since
	if err == nil && m.Status == stream.Streaming {
		return Message{}, ErrCancelPending
	}
	return m, err
}

// stopReply returns a message; if it is a live reply, whichever node writes it is told that it is to stop.
func (s *Service) stopReply(ctx context.Context, owner Owner, sessionID, messageID string) (Message, error) {
	if s.Nodes == nil {
		return s.Store.Message(ctx, owner, sessionID, messageID)
	}
	return s.Nodes.StopReply(ctx, owner, sessionID, messageID)
}

// Clear removes all messages of a session; a reply that is being written is cancelled first. It returns how many
// messages were removed.
func (s *Service) Clear(ctx context.Context, owner Owner, sessionID string) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, queueWait, ErrSessionBusy)
	defer cancel()
	waiter := RandomText(suffixLength)
	for {
		cleared, err := s.Store.ClearMessages(ctx, owner, sessionID, waiter)
		if err != nil {
			s.giveUp(owner, sessionID, waiter, err)
			return 0, orCause(ctx, err)
		}
		if cleared.Queued == nil {
			s.stopFolding(sessionID)
			s.hub.Clear(sessionID, cleared.Session.Cleared)
			return cleared.Count, nil
		}
		s.interrupt(sessionID, cleared.Queued.Live, errCleared)
		if err := s.awaitGrant(ctx, owner, sessionID, waiter, cleared.Queued); err != nil {
			return 0, err
		}
	}
}
