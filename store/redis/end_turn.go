package redis

import (
	"context"
	"errors"

	"parley/conversation"
	"parley/store/record"
	"parley/stream"
)

var endTurnScript = newScript("end_turn", wakes|idempotent|durable)

// errStreaming means that the caller passed a reply that is still streaming.
var errStreaming = errors.New("redis: EndTurn needs a reply that has ended")

// EndTurn implements conversation.Store. After a lost response, the script is sent once more. If the first run ended the turn,
// EndTurn returns ErrFenced and the reply that the first run stored. If the reply has been cleared since, EndTurn returns
// ErrFenced and an empty message.
func (s *Store) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	if reply.Status == stream.Streaming || reply.Status == "" {
		return conversation.Message{}, errStreaming
	}
	tag := tagOfOwner(key.Owner)
	reply.ID, reply.SessionID, reply.Role = key.ReplyID, key.SessionID, conversation.Assistant
	ended, err := s.run(ctx, endTurnScript, tag, []string{sessionKey(tag, key.SessionID)}, endingOf(key.Fence, &reply, timing)...)
	if err != nil {
		return conversation.Message{}, err
	}
	s.turns.ended(key)
	s.journal.forget(key)
	parts := list(ended)
	switch how := outcome(parts); {
	case how == "ended" && len(parts) == 2:
		reply.CreatedAt, reply.Terms = conversation.Time(integer(parts[1])), nil
		return reply, nil
	case how == "fenced" && len(parts) == 2:
		if text(parts[1]) == "" {
			return conversation.Message{}, conversation.ErrFenced
		}
		stored, err := readMember(key.SessionID, text(parts[1]))
		if stored.Status == stream.Streaming { // the fencing token is wrong: the turn is still live
			stored.Content = ""
		}
		return stored, errors.Join(err, conversation.ErrFenced)
	case how == "gone":
		return conversation.Message{}, conversation.ErrSessionNotFound
	}
	return conversation.Message{}, endTurnScript.malformed()
}

// endingOf returns the arguments of the scripts end_turn and end_orphan. reply is the ended reply.
func endingOf(fence int64, reply *conversation.Message, timing conversation.Timing) []any {
	var used conversation.Usage
	if reply.Usage != nil {
		used = *reply.Usage
	}
	counted := conversation.UsageOfTurnEnd(reply, timing)
	return appendCounts([]any{
		reply.SessionID, reply.ID, fence, record.AppendMessage(nil, reply), reply.TokensInPrompt(), used.Prompt, used.Completion, used.Total,
		appendIndexed(nil, reply), appendTerms(nil, reply.Terms), reply.StoredBytes(), boolean(reply.Unanswered()),
	}, &counted)
}
