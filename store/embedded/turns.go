package embedded

import (
	"context"
	"errors"
	"slices"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/conversation/window"
	"parley/stream"
)

// BeginTurn implements conversation.Store. A waiter that was granted the session and meets an overflow has given it
// up: the next in the queue is granted it.
func (s *Store) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	r := reservation{admission: auth.AdmissionOf(ctx)}
	begun, err := update(ctx, s, func(w *writing) (conversation.TurnStart, error) {
		return w.beginTurn(ref{owner, turn.SessionID}, &turn, &r)
	})
	switch {
	case !r.made:
	case err != nil:
		s.limits.release(owner, r.taken)
	default:
		s.limits.hold(begun.Reply.ID, r.taken)
	}
	return begun, err
}

// reservation is what is reserved for a turn that is to begin.
type reservation struct {
	admission *auth.Admission // nil for none
	made      bool
	taken     limit.Reservation
}

func (w *writing) beginTurn(at ref, turn *conversation.NewTurn, r *reservation) (conversation.TurnStart, error) {
	session, err := w.session(at)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	if r.admission != nil { // a send that has waited was admitted a while ago
		if err := w.alive(r.admission); err != nil {
			w.leave(at, turn.Waiter)
			return conversation.TurnStart{}, err
		}
	}
	earlier, found, err := w.recall(at.owner, turn.Idempotency)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	if found {
		w.leave(at, turn.Waiter)
		return conversation.TurnStart{Replayed: &earlier.turn}, nil
	}
	if !w.mayTake(at, &session, turn.Waiter) {
		if turn.OnBusy == conversation.Reject {
			return conversation.TurnStart{}, conversation.ErrSessionBusy
		}
		queued, err := w.enqueue(at, &session, waiter{
			name: turn.Waiter, interrupts: turn.OnBusy == conversation.Interrupt, idempotency: idempotencyOf(turn.Idempotency),
		})
		return conversation.TurnStart{Queued: queued}, err
	}
	tokens := turn.Tokens + window.MessageOverhead
	config := session.Context
	if current, ok := window.Check(config.MaxTokens, config.CompressionEnabled, session.HistoryTokens, tokens); !ok {
		w.refuse(at, turn.Waiter)
		return conversation.TurnStart{}, &conversation.OverflowError{CurrentTokens: current, MaxTokens: config.MaxTokens}
	}
	if err := w.reserve(r, window.Estimate(config.MaxTokens, session.HistoryTokens, tokens)); err != nil {
		w.refuse(at, turn.Waiter)
		return conversation.TurnStart{}, err
	}
	before, err := w.context(at, &session, turn.Tokens)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	begun := conversation.TurnStart{Previous: session.Head, Summary: before.Summary, History: before.History, Index: before.Index}
	begun.Message, begun.Reply = messagesOf(turn, &session, w.now)
	last := session.LastActivity
	session.LastActivity = begun.Message.CreatedAt
	session.MessageCount += 2
	session.HistoryTokens += tokens
	session.Head, session.LiveReply, session.LiveMessage = begun.Reply.ID, begun.Reply.ID, begun.Message.ID
	session.Fence++
	begun.Session = session
	begun.Key = conversation.TurnKey{
		Owner: at.owner, SessionID: session.ID, ReplyID: begun.Reply.ID, Fence: session.Fence,
	}
	err = w.remember(at, turn.Idempotency, conversation.Replayed{SentID: begun.Message.ID, ReplyID: begun.Reply.ID})
	if err != nil {
		return conversation.TurnStart{}, err
	}
	return begun, w.putTurn(at, &begun, last, idempotencyOf(turn.Idempotency))
}

// reserve reserves the tokens of a turn: once, also if its transaction is run again.
func (w *writing) reserve(r *reservation, tokens int) (err error) {
	if r.admission == nil || r.made {
		return nil
	}
	r.taken, err = w.store.limits.reserve(r.admission, tokens)
	r.made = err == nil
	return err
}

// idempotencyOf returns the idempotency key, "" for none.
func idempotencyOf(i *conversation.Idempotency) string {
	if i == nil {
		return ""
	}
	return i.Key
}

// messagesOf returns the message of a turn and the reply as it begins. Their ids rise within the session, and their
// time is never below its last.
func messagesOf(turn *conversation.NewTurn, session *conversation.Session, now conversation.Time) (message, reply conversation.Message) {
	now = max(now, session.LastActivity)
	message = conversation.Message{
		ID:        conversation.NewID(conversation.MessagePrefix, now, session.Head),
		SessionID: session.ID,
		Role:      turn.Role,
		Content:   turn.Content,
		Tokens:    turn.Tokens,
		CreatedAt: now,
		Metadata:  turn.Metadata,
		Status:    stream.Completed,
	}
	reply = conversation.Message{
		ID:        conversation.NewID(conversation.MessagePrefix, now, message.ID),
		SessionID: session.ID,
		Role:      conversation.Assistant,
		CreatedAt: now,
		Status:    stream.Streaming,
	}
	return message, reply
}

// putTurn writes a turn that begins, by a request with that idempotency key, in a session that was last active at that time.
func (w *writing) putTurn(at ref, begun *conversation.TurnStart, last conversation.Time, idempotency string) error {
	if err := w.countBeginning(at.owner, begun, last); err != nil {
		return err
	}
	if err := w.putMessage(at, &begun.Message); err != nil {
		return err
	}
	if err := w.index(at, &begun.Session, &begun.Message); err != nil {
		return err
	}
	if err := w.putMessage(at, &begun.Reply); err != nil {
		return err
	}
	if err := w.putSession(at, &begun.Session); err != nil {
		return err
	}
	prompt := min(begun.Session.HistoryTokens, window.Budget(begun.Session.Context.MaxTokens)) + window.PromptOverhead
	if err := w.putLive(at, liveRecord{begun.Reply.ID, begun.Key.Fence, prompt}); err != nil {
		return err
	}
	w.began = append(w.began, begun.Key)
	w.taken(at, idempotency)
	return nil
}

// EndTurn implements conversation.Store. Where the turn was ended and its message has been cleared since, the message
// beside ErrFenced is empty.
func (s *Store) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	if reply.Status == stream.Streaming || reply.Status == "" {
		return conversation.Message{}, errors.New("embedded: a turn does not end with a reply that is streaming")
	}
	gone := false
	ended, err := update(ctx, s, func(w *writing) (conversation.Message, error) {
		at := ref{key.Owner, key.SessionID}
		session, err := w.session(at)
		if gone = errors.Is(err, conversation.ErrSessionNotFound); gone {
			_, err := w.settleGone(key, timing, func(liveRecord) *conversation.Message { return &reply })
			return conversation.Message{}, err // and not that it is gone: what fails must not have written
		}
		if err != nil {
			return conversation.Message{}, err
		}
		if session.LiveReply != key.ReplyID || session.Fence != key.Fence {
			decided, err := w.message(at, key.ReplyID)
			if err != nil && !errors.Is(err, conversation.ErrMessageNotFound) {
				return conversation.Message{}, err
			}
			return decided, conversation.ErrFenced
		}
		ended := reply // a copy for each time that this runs
		return ended, w.endTurn(at, &session, &ended, timing)
	})
	if err == nil && gone {
		err = conversation.ErrSessionNotFound
	}
	if !errors.Is(err, conversation.ErrUnavailable) {
		used := 0
		if reply.Usage != nil {
			used = reply.Usage.Total
		}
		s.limits.settle(key, used)
	}
	return ended, err
}

// endTurn ends the live turn of a session with a reply, which takes over the identity of the stored one.
func (w *writing) endTurn(at ref, session *conversation.Session, reply *conversation.Message, timing conversation.Timing) error {
	stored, err := w.message(at, session.LiveReply)
	if err != nil {
		return err
	}
	reply.ID, reply.SessionID, reply.Role, reply.CreatedAt = stored.ID, stored.SessionID, stored.Role, stored.CreatedAt
	session.HistoryTokens += reply.TokensInPrompt()
	if err := w.index(at, session, reply); err != nil {
		return err
	}
	reply.Terms = nil
	if u := reply.Usage; u != nil {
		session.TokenUsage.Prompt += u.Prompt
		session.TokenUsage.Completion += u.Completion
		session.TokenUsage.Total += u.Total
	}
	session.LiveReply, session.LiveMessage = "", ""
	if err := w.putMessage(at, reply); err != nil {
		return err
	}
	if err := w.putSession(at, session); err != nil {
		return err
	}
	if err := w.delete(liveBucket, at.key()); err != nil {
		return err
	}
	w.ended = append(w.ended, reply.ID)
	w.handOver(at)
	return w.count(at.owner, momentHour(w.now), conversation.UsageOfTurnEnd(reply, timing))
}

// Journal implements conversation.Store. It is as durable as the machine, but not more: the process can die, the
// power should not.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.journal.write(batch)
}

// orphansAtOnce is how many turns EndOrphans ends in one transaction.
const orphansAtOnce = 64

// EndOrphans implements conversation.Store: it ends the turns that were live, or not settled, when the file was opened.
// Called again, it ends those that it could not end before, and else returns 0.
func (s *Store) EndOrphans(ctx context.Context, count func(text string) int) (int, error) {
	ended, err := update(ctx, s, func(w *writing) (int, error) { return w.settleLeft(s.left) })
	if err != nil {
		return 0, err
	}
	for keys := range slices.Chunk(s.orphans, orphansAtOnce) {
		replies := make([]conversation.Message, 0, len(keys))
		for _, key := range keys {
			text, live := s.journal.text(key.ReplyID)
			if !live {
				text = "" // it has ended, as endOrphans will see
			}
			replies = append(replies, conversation.Message{
				ID: key.ReplyID, Content: text, Tokens: count(text), Status: stream.Interrupted, Terms: window.TermsOf(text),
			})
		}
		n, err := update(ctx, s, func(w *writing) (int, error) { return w.endOrphans(keys, replies) })
		ended += n
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// endOrphans ends those of the turns that are live or not settled still, and returns how many that were.
func (w *writing) endOrphans(keys []conversation.TurnKey, replies []conversation.Message) (int, error) {
	ended := 0
	for i, key := range keys {
		at := ref{key.Owner, key.SessionID}
		session, err := w.session(at)
		if errors.Is(err, conversation.ErrSessionNotFound) {
			settled, err := w.settleGone(key, conversation.Timing{}, func(live liveRecord) *conversation.Message {
				return orphaned(replies[i], live)
			})
			if err != nil {
				return 0, err
			}
			if settled {
				ended++
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		if session.LiveReply != key.ReplyID || session.Fence != key.Fence {
			continue
		}
		live, err := readLive(w.bucket(liveBucket).Get(at.key()))
		if err != nil {
			return 0, err
		}
		if err := w.endTurn(at, &session, orphaned(replies[i], live), conversation.Timing{}); err != nil {
			return 0, err
		}
		ended++
	}
	return ended, nil
}

// orphaned returns the reply of a turn that nobody lives to settle, with its usage estimated.
func orphaned(reply conversation.Message, live liveRecord) *conversation.Message {
	reply.Usage = &conversation.Usage{
		Prompt: live.Prompt, Completion: reply.Tokens, Total: live.Prompt + reply.Tokens, Estimated: true,
	}
	return &reply
}
