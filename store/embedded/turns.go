package embedded

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/window"
	"parley/store/record"
	"parley/stream"
)

// BeginTurn implements conversation.Store. If the window or the rate limit refuses the turn of a waiter that was granted the
// session, the session goes to the next waiter.
func (s *Store) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	r := reservation{admission: auth.AdmissionOf(ctx)}
	begun, err := update(ctx, s, func(w *writing) (conversation.TurnStart, error) {
		return w.beginTurn(ctx, ref{owner, turn.SessionID}, &turn, &r)
	})
	switch {
	case !r.made:
	case err != nil:
		s.limits.release(r.taken)
	default:
		s.limits.hold(begun.Reply.ID, r.taken)
	}
	return begun, err
}

// reservation holds the tokens that are reserved for a turn before the turn begins.
type reservation struct {
	admission *auth.Admission // nil if the request has no admission
	made      bool
	taken     turnTokens
}

func (w *writing) beginTurn(ctx context.Context, at ref, turn *conversation.NewTurn, r *reservation) (conversation.TurnStart, error) {
	session, err := w.session(at)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	other, begins, err := w.mayBegin(ctx, at, &session, turn, r)
	if err != nil || !begins {
		return other, err
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
	session.HistoryTokens += turn.Tokens + window.MessageOverhead
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
	if turn.Prepared != nil {
		w.prepared = append(w.prepared, preparedTurn{turn, begun})
	}
	return begun, w.putTurn(at, &begun, last, idempotencyOf(turn.Idempotency))
}

// preparedTurn is a turn that begins when the transaction is committed.
type preparedTurn struct {
	turn  *conversation.NewTurn
	begun conversation.TurnStart
}

// reportPrepared calls the Prepared of each turn that the transaction begins, once. The committer calls it when all operations of
// the batch have run, just before the commit. It then yields, so that the requests to the model are on their way before the
// commit waits for the disk.
func (w *writing) reportPrepared() {
	if len(w.prepared) == 0 {
		return
	}
	for _, p := range w.prepared {
		report := p.turn.Prepared
		p.turn.Prepared = nil // if the commit fails, the operation may run again
		report(p.begun)
	}
	runtime.Gosched()
}

// mayBegin decides whether a turn begins now. If so, it reserves the turn's tokens. If not, other reports that the request is a
// replay or that it waits in the queue. If the turn is refused, err is the reason.
func (w *writing) mayBegin(ctx context.Context, at ref, session *conversation.Session, turn *conversation.NewTurn, r *reservation) (other conversation.TurnStart, begins bool, err error) {
	if r.admission != nil { // the key may have been revoked while the send waited in the queue
		if err := w.alive(r.admission); err != nil {
			w.leave(at, turn.Waiter)
			return other, false, err
		}
	}
	earlier, found, err := w.recall(at.owner, turn.Idempotency)
	if err != nil {
		return other, false, err
	}
	if found {
		w.leave(at, turn.Waiter)
		return conversation.TurnStart{Replayed: &earlier.Turn}, false, nil
	}
	if err := w.mayGrow(); err != nil {
		w.refuse(at, turn.Waiter)
		return other, false, err
	}
	if !w.mayTake(at, session, turn.Waiter) {
		if turn.OnBusy == conversation.Reject {
			return other, false, conversation.ErrSessionBusy
		}
		queued, err := w.enqueue(at, session, waiter{
			name: turn.Waiter, interrupts: turn.OnBusy == conversation.Interrupt, idempotency: idempotencyOf(turn.Idempotency),
		})
		return conversation.TurnStart{Queued: queued}, false, err
	}
	tokens := turn.Tokens + window.MessageOverhead
	size := session.Window()
	if current, ok := size.Check(session.Context.CompressionEnabled, session.HistoryTokens, tokens); !ok {
		w.refuse(at, turn.Waiter)
		return other, false, &conversation.OverflowError{CurrentTokens: current, MaxTokens: size.MaxTokens}
	}
	if err := w.mayStore(ctx, at.owner, len(turn.Content)+len(turn.Metadata)); err != nil {
		w.refuse(at, turn.Waiter)
		return other, false, err
	}
	if err := w.checkMonth(at.owner, r.admission); err != nil {
		w.refuse(at, turn.Waiter)
		return other, false, err
	}
	if err := w.reserve(r, session.UserID, size.Estimate(session.HistoryTokens+tokens)); err != nil {
		w.refuse(at, turn.Waiter)
		return other, false, err
	}
	return other, true, nil
}

// reserve reserves the tokens of a turn. user is the user of the turn's session. If the transaction runs again, it does not
// reserve the tokens twice.
func (w *writing) reserve(r *reservation, user string, tokens int) (err error) {
	if r.admission == nil || r.made {
		return nil
	}
	r.taken, err = w.store.limits.reserve(r.admission, user, tokens)
	r.made = err == nil
	return err
}

// idempotencyOf returns the idempotency key; "" for nil.
func idempotencyOf(i *conversation.Idempotency) string {
	if i == nil {
		return ""
	}
	return i.Key
}

// messagesOf returns the message of a turn and its empty reply. Their ids are greater than all earlier message ids of the
// session. Their time is not before the session's last activity, even if the clock went back.
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

// putTurn writes a turn that begins. last is the time of the session's previous activity. idempotency is the key of the request;
// "" for none.
func (w *writing) putTurn(at ref, begun *conversation.TurnStart, last conversation.Time, idempotency string) error {
	if err := w.countBeginning(at.owner, begun, last); err != nil {
		return err
	}
	if err := w.putMessage(at, &begun.Message, begun.Session.MessageCount-1); err != nil {
		return err
	}
	if err := w.addStored(at.owner, begun.Session.ExpiresAt, storedCount{bytes: int64(begun.Message.StoredBytes())}); err != nil {
		return err
	}
	if err := w.index(at, &begun.Session, &begun.Message); err != nil {
		return err
	}
	if err := w.putMessage(at, &begun.Reply, begun.Session.MessageCount); err != nil {
		return err
	}
	if err := w.putSession(at, &begun.Session); err != nil {
		return err
	}
	prompt := begun.Session.Window().Prompt(begun.Session.HistoryTokens)
	if err := w.putLiveTurn(liveBucket, w.sessionKey(at), record.LiveTurn{ReplyID: begun.Reply.ID, Fence: begun.Key.Fence, Prompt: prompt}); err != nil {
		return err
	}
	w.began = append(w.began, begun.Key)
	w.taken(at, idempotency)
	return nil
}

// EndTurn implements conversation.Store. It returns an empty message with ErrFenced if the turn has ended and its reply has been
// cleared.
func (s *Store) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	if reply.Status == stream.Streaming || reply.Status == "" {
		return conversation.Message{}, errors.New("embedded: a turn does not end with a reply that is streaming")
	}
	s.journal.share(key, reply.Content)
	gone := false
	ended, err := update(ctx, s, func(w *writing) (conversation.Message, error) {
		at := ref{key.Owner, key.SessionID}
		session, err := w.session(at)
		if gone = errors.Is(err, conversation.ErrSessionNotFound); gone {
			_, err := w.settleGone(key, timing, func(record.LiveTurn) *conversation.Message { return &reply })
			return conversation.Message{}, err // not ErrSessionNotFound: an operation that fails must not have written
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
		ended := reply // a copy, because the operation may run again
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

// endTurn ends the live turn of a session with reply. It copies the id, session, role and creation time from the stored reply.
func (w *writing) endTurn(at ref, session *conversation.Session, reply *conversation.Message, timing conversation.Timing) error {
	stored, err := w.message(at, session.LiveReply)
	if err != nil {
		return err
	}
	reply.ID, reply.SessionID, reply.Role, reply.CreatedAt = stored.ID, stored.SessionID, stored.Role, stored.CreatedAt
	session.HistoryTokens += reply.TokensInPrompt()
	if reply.Unanswered() {
		asked, err := w.message(at, session.LiveMessage)
		if err != nil {
			return err
		}
		session.HistoryTokens -= asked.TokensInPrompt()
	}
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
	if err := w.putMessage(at, reply, session.MessageCount); err != nil {
		return err
	}
	if err := w.addStored(at.owner, session.ExpiresAt, storedCount{bytes: int64(reply.StoredBytes())}); err != nil {
		return err
	}
	if err := w.putSession(at, session); err != nil {
		return err
	}
	if err := w.delete(liveBucket, w.sessionKey(at)); err != nil {
		return err
	}
	w.ended = append(w.ended, reply.ID)
	w.handOver(at)
	return w.count(at.owner, momentHour(w.now), conversation.UsageOfTurnEnd(reply, timing))
}

// Journal implements conversation.Store. The text survives the death of the process, but not a power failure, because the journal
// is not synced.
func (s *Store) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.journal.write(batch)
	switch {
	case err == nil:
		s.health.clear(unjournalled)
	case noSpace(err):
		return s.health.set(full, err)
	default:
		return s.health.set(unjournalled, err)
	}
	if err := s.journal.keepRoom(); err != nil { // this text is stored, but the disk has no room for more: new sends are refused
		_ = s.health.set(full, err)
	}
	return nil
}

// orphansAtOnce is the maximum number of turns that EndOrphans ends in one transaction. This limits the memory for the texts of
// the replies.
const orphansAtOnce = 64

// EndOrphans implements conversation.Store. It ends the turns that were live or not settled when the file was opened. If a call
// fails, the next call ends the turns that are left.
func (s *Store) EndOrphans(ctx context.Context, count func(text string) int) (int, error) {
	ended, err := update(ctx, s, func(w *writing) (int, error) { return w.settleLeft(s.unsettled) })
	if err != nil {
		return 0, err
	}
	for keys := range slices.Chunk(s.orphans, orphansAtOnce) {
		replies := make([]conversation.Message, 0, len(keys))
		for _, key := range keys {
			text, live := s.journal.text(key.ReplyID)
			if !live {
				text = "" // the turn has ended, so endOrphans skips it
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

// endOrphans ends the turns that are still live or not settled, and returns their number.
func (w *writing) endOrphans(keys []conversation.TurnKey, replies []conversation.Message) (int, error) {
	ended := 0
	for i, key := range keys {
		at := ref{key.Owner, key.SessionID}
		session, err := w.session(at)
		if errors.Is(err, conversation.ErrSessionNotFound) {
			settled, err := w.settleGone(key, conversation.Timing{}, func(live record.LiveTurn) *conversation.Message {
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
		live, err := readLiveTurn(w.bucket(liveBucket).Get(at.key()))
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

// orphaned returns a copy of reply with estimated usage. The node of the reply is gone, so the usage that the model reported is
// unknown.
func orphaned(reply conversation.Message, live record.LiveTurn) *conversation.Message {
	reply.Usage = &conversation.Usage{
		Prompt: live.Prompt, Completion: reply.Tokens, Total: live.Prompt + reply.Tokens, Estimated: true,
	}
	return &reply
}
