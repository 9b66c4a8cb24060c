package redis

import (
	"context"
	"errors"

	"parley/auth"
	"parley/conversation"
	"parley/stream"
)

var (
	beginTurnScript  = newScript("begin_turn", reserves|turns|wakes|idempotent|durable)
	resumeTurnScript = newScript("resume_turn", turns|wakes|idempotent)
	endTurnScript    = newScript("end_turn", sessions|wakes|idempotent|durable)
)

// answers are the words with which scripts refuse.
var answers = map[string]error{
	"gone":     conversation.ErrSessionNotFound,
	"busy":     conversation.ErrSessionBusy,
	"conflict": conversation.ErrIdempotencyConflict,
	"none":     conversation.ErrMessageNotFound,
	"void":     conversation.ErrUnavailable,
}

// BeginTurn implements conversation.Store. A waiter that was granted the session and meets a refusal has given it up: the
// next in the queue is granted it. Where the answer is lost, it is asked for once more, which begins nothing twice.
func (s *Store) BeginTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	if turn.Waiter == "" {
		return conversation.TurnStart{}, errNoWaiter
	}
	tag := tagOfOwner(owner)
	key, digest := requestOf(turn.Idempotency)
	message, counted := messageOf(&turn), conversation.UsageOfTurnStart(turn.Role)
	place := s.waiters.take(turn.SessionID, turn.Waiter)
	live := liveMember(tag, turn.SessionID, turn.Waiter)
	reply, err := s.runWith(ctx, beginTurnScript, tag, []string{sessionKey(tag, turn.SessionID)}, s.turns.beginning(s.node, live),
		appendCounts([]any{
			turn.SessionID, turn.Waiter, s.node, appendMessage(nil, &message), message.TokensInPrompt(), string(turn.OnBusy),
			conversation.RandomText(2 * randomLength), key, digest, appendIndexed(nil, &message),
		}, &counted)...)
	parts := list(reply)
	if word(parts) != "queued" {
		s.waiters.drop(place)
	}
	if err == nil && word(parts) == "begun" {
		return s.begun(owner, &turn, parts)
	}
	if word(parts) != "queued" && !errors.Is(err, conversation.ErrUnavailable) { // one tries again, the other may have begun
		s.turns.notBegun(live)
	}
	switch {
	case errors.Is(err, auth.ErrInvalidToken): // of a send that waited, the key may have been revoked meanwhile
		_ = s.LeaveQueue(ctx, owner, turn.SessionID, turn.Waiter)
		return conversation.TurnStart{}, err
	case err != nil:
		return conversation.TurnStart{}, err
	case word(parts) == "queued" && len(parts) == 3:
		s.suspect(owner, turn.SessionID, text(parts[2]))
		return conversation.TurnStart{Queued: s.waiters.await(place, text(parts[1]))}, nil
	case word(parts) == "replayed" && len(parts) == 3:
		return conversation.TurnStart{Replayed: &conversation.Replayed{SentID: text(parts[1]), ReplyID: text(parts[2])}}, nil
	}
	return conversation.TurnStart{}, refusedTurn(ctx, parts)
}

// refusedTurn returns why a turn did not begin.
func refusedTurn(ctx context.Context, parts []any) error {
	switch what := word(parts); {
	case what == "overflow" && len(parts) == 3:
		return &conversation.OverflowError{CurrentTokens: int(integer(parts[1])), MaxTokens: int(integer(parts[2]))}
	case what == "tokens" && len(parts) == 2:
		refused, err := tokensRefused(auth.AdmissionOf(ctx).Limits.TokensPerMinute, parts[1])
		if err != nil {
			return err
		}
		return refused
	case answers[what] != nil:
		return answers[what]
	}
	return beginTurnScript.malformed()
}

// messageOf returns the message of a turn, but for what the store stamps.
func messageOf(turn *conversation.NewTurn) conversation.Message {
	return conversation.Message{
		SessionID: turn.SessionID, Role: turn.Role, Content: turn.Content, Tokens: turn.Tokens, Metadata: turn.Metadata,
		Status: stream.Completed,
	}
}

// begun reads a turn that has begun (lua/begin_turn.lua), and notes it.
func (s *Store) begun(owner conversation.Owner, turn *conversation.NewTurn, parts []any) (b conversation.TurnStart, err error) {
	if len(parts) != 8 {
		return b, beginTurnScript.malformed()
	}
	if b.Session, err = readSession(turn.SessionID, parts[1]); err != nil {
		return conversation.TurnStart{}, err
	}
	b.Previous = text(parts[2])
	c, err := readContext(turn.SessionID, parts[3:])
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
	return b, nil
}

// ResumeTurn implements conversation.Nodes. After ErrMessageNotFound, the waiter's name is spent: for a minute BeginTurn
// refuses it with conversation.ErrUnavailable, as a call that is under way still may reach Redis later.
func (s *Store) ResumeTurn(ctx context.Context, owner conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	tag := tagOfOwner(owner)
	live := liveMember(tag, turn.SessionID, turn.Waiter)
	reply, err := s.runWith(ctx, resumeTurnScript, tag, []string{sessionKey(tag, turn.SessionID)}, s.turns.beginning(s.node, live),
		turn.SessionID, turn.Waiter, s.node)
	if err != nil {
		return conversation.TurnStart{}, err
	}
	parts := list(reply)
	if word(parts) == "begun" {
		return s.begun(owner, &turn, parts)
	}
	s.turns.notBegun(live)
	return conversation.TurnStart{}, refusedTurn(ctx, parts)
}

// endingOf returns the arguments of the scripts that end a turn with a reply.
func endingOf(fence int64, reply *conversation.Message, timing conversation.Timing) []any {
	var used conversation.Usage
	if reply.Usage != nil {
		used = *reply.Usage
	}
	counted := conversation.UsageOfTurnEnd(reply, timing)
	return appendCounts([]any{
		reply.SessionID, reply.ID, fence, appendMessage(nil, reply), reply.TokensInPrompt(), used.Prompt, used.Completion, used.Total,
		appendIndexed(nil, reply), appendTerms(nil, reply.Terms),
	}, &counted)
}

// errNoWaiter says that a send has no name. It is what a repeated call is known by.
var errNoWaiter = errors.New("redis: a turn needs the name of its waiter")

// errStreaming says that a turn was to end with a reply that goes on.
var errStreaming = errors.New("redis: a turn does not end with a reply that is streaming")

// EndTurn implements conversation.Store. Where the answer is lost, it is asked for once more: the turn may then be ended by
// the first call, and the answer ErrFenced, with this ending. Where the turn was ended and its message has been cleared
// since, the message beside ErrFenced is empty.
func (s *Store) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	if reply.Status == stream.Streaming || reply.Status == "" {
		return conversation.Message{}, errStreaming
	}
	tag := tagOfOwner(key.Owner)
	reply.ID, reply.SessionID, reply.Role = key.ReplyID, key.SessionID, conversation.Assistant
	answer, err := s.run(ctx, endTurnScript, tag, []string{sessionKey(tag, key.SessionID)}, endingOf(key.Fence, &reply, timing)...)
	if err != nil {
		return conversation.Message{}, err
	}
	s.turns.ended(key)
	s.journal.forget(key)
	parts := list(answer)
	switch what := word(parts); {
	case what == "ended" && len(parts) == 2:
		reply.CreatedAt, reply.Terms = conversation.Time(integer(parts[1])), nil
		return reply, nil
	case what == "fenced" && len(parts) == 2:
		if text(parts[1]) == "" {
			return conversation.Message{}, conversation.ErrFenced
		}
		decided, err := readMember(key.SessionID, text(parts[1]))
		if decided.Status == stream.Streaming { // a key with a wrong fence: nothing is decided yet
			decided.Content = ""
		}
		return decided, errors.Join(err, conversation.ErrFenced)
	case what == "gone":
		return conversation.Message{}, conversation.ErrSessionNotFound
	}
	return conversation.Message{}, endTurnScript.malformed()
}
