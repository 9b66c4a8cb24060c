package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/record"
	"parley/stream"
)

var beginTurnScript = newScript("begin_turn", reserves|wakes|idempotent|durable)

// refusals maps a refusal, the word that a script returns, to the error.
var refusals = map[string]error{
	"gone":     conversation.ErrSessionNotFound,
	"busy":     conversation.ErrSessionBusy,
	"conflict": conversation.ErrIdempotencyConflict,
	"none":     conversation.ErrMessageNotFound,
	"void":     conversation.ErrTurnUnknown,
}

// errNoWaiter means that the caller passed no waiter. The script recognises a repeated call by its waiter.
var errNoWaiter = errors.New("redis: BeginTurn needs the name of its waiter")

// BeginTurn implements conversation.Store. A waiter gives up its grant if its message does not fit the window, the limit of
// tokens is exceeded, or its API key no longer works. Then the next waiter in the queue is granted the session. After a lost
// reply, the script is sent once more unless it counts a request. The repeat does not begin a second turn.
func (s *Store) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	if turn.Waiter == "" {
		return conversation.TurnStart{}, errNoWaiter
	}
	tag := tagOfOwner(owner)
	key, digest := requestOf(turn.Idempotency)
	message, counted, asked := messageOf(&turn), conversation.UsageOfTurnStart(turn.Role), time.Now()
	place := s.waiters.register(turn.SessionID, turn.Waiter)
	live := liveMember(tag, turn.SessionID, turn.Waiter)
	reply, err := s.runWith(ctx, beginTurnScript, tag, []string{sessionKey(tag, turn.SessionID)}, s.turns.beginning(s.node, live),
		appendCounts([]any{
			turn.SessionID, turn.Waiter, s.node, record.AppendMessage(nil, &message), message.TokensInPrompt(), string(turn.OnBusy),
			conversation.RandomText(2 * randomLength), key, digest, appendIndexed(nil, &message),
			message.StoredBytes(), auth.LimitsOf(ctx).StoredBytes, monthLimit(ctx),
		}, &counted)...)
	parts := list(reply)
	if outcome(parts) != "queued" {
		s.waiters.drop(place)
	}
	if err == nil && outcome(parts) == "begun" {
		return s.begun(owner, &turn, parts, asked)
	}
	// A queued waiter tries again. After ErrUnavailable, the turn may have begun.
	if outcome(parts) != "queued" && !errors.Is(err, conversation.ErrUnavailable) {
		s.turns.notBegun(live)
	}
	switch {
	case errors.Is(err, auth.ErrInvalidToken): // the API key may have been revoked while the waiter was in the queue
		_ = s.LeaveQueue(ctx, owner, turn.SessionID, turn.Waiter)
		return conversation.TurnStart{}, err
	case err != nil:
		return conversation.TurnStart{}, err
	case outcome(parts) == "queued" && len(parts) == 3:
		s.suspect(owner, turn.SessionID, text(parts[2]))
		return conversation.TurnStart{Queued: s.waiters.await(place, text(parts[1]))}, nil
	case outcome(parts) == "replayed" && len(parts) == 3:
		return conversation.TurnStart{Replayed: &conversation.Replayed{SentID: text(parts[1]), ReplyID: text(parts[2])}}, nil
	}
	return conversation.TurnStart{}, refusedTurn(ctx, parts)
}

// monthLimit returns the argument of the script that limits the tokens of the month; "" for no limit.
func monthLimit(ctx context.Context) string {
	limits := auth.LimitsOf(ctx)
	if limits.EnforcedTokens() == 0 {
		return ""
	}
	first, next := usage.Month(usage.HourOf(time.Now().UnixMilli()))
	return fmt.Sprintf("%d %d %d", limits.EnforcedTokens(), first, next)
}

// refusedTurn returns the error for a turn that did not begin.
func refusedTurn(ctx context.Context, parts []any) error {
	switch why := outcome(parts); {
	case why == "overflow" && len(parts) == 3:
		return &conversation.OverflowError{CurrentTokens: int(integer(parts[1])), MaxTokens: int(integer(parts[2]))}
	case why == "tokens" && len(parts) == 2:
		refused, err := tokensRefused(auth.AdmissionOf(ctx), parts[1])
		if err != nil {
			return err
		}
		return refused
	case why == "quota":
		return quotaRefused(ctx, parts)
	case refusals[why] != nil:
		return refusals[why]
	}
	return beginTurnScript.malformed()
}

// messageOf returns the message of a turn. It has no id and no time, because the script sets them.
func messageOf(turn *conversation.NewTurn) conversation.Message {
	return conversation.Message{
		SessionID: turn.SessionID, Role: turn.Role, Content: turn.Content, Tokens: turn.Tokens, Metadata: turn.Metadata,
		Status: stream.Completed,
	}
}

// begun reads the result of a script that has begun a turn, and adds the turn to this node's live turns and journals. The time
// asked is before the script ran.
func (s *Store) begun(owner conversation.Owner, turn *conversation.NewTurn, parts []any, asked time.Time) (b conversation.TurnStart, err error) {
	if len(parts) != 9 {
		return b, beginTurnScript.malformed()
	}
	if b.Session, err = readSession(turn.SessionID, parts[1]); err != nil {
		return conversation.TurnStart{}, err
	}
	b.Previous = text(parts[2])
	c, err := readContext(turn.SessionID, parts[4:])
	if err != nil {
		return conversation.TurnStart{}, err
	}
	b.Summary, b.History, b.Index = c.Summary, c.History, c.Index
	b.Message = messageOf(turn)
	b.Message.ID, b.Message.CreatedAt = b.Session.LiveMessage, b.Session.LastActivity
	b.Reply = conversation.Message{
		ID: b.Session.LiveReply, SessionID: turn.SessionID, Role: conversation.Assistant, CreatedAt: b.Session.LastActivity,
		Status: stream.Streaming,
	}
	b.Key = conversation.TurnKey{
		Owner: owner, SessionID: turn.SessionID, ReplyID: b.Reply.ID, Fence: b.Session.Fence,
	}
	s.turns.begun(b.Key, liveMember(tagOfOwner(owner), turn.SessionID, turn.Waiter))
	s.journal.begun(&b.Key, asked, time.Duration(integer(parts[3]))*time.Millisecond)
	return b, nil
}
