package redis

import (
	"context"
	"fmt"

	"parley/auth"
	"parley/conversation"
)

var updateSessionScript = newScript("update_session", admits|idempotent|durable)

// updateAttempts is the maximum number of times that UpdateSession tries to store a change. An attempt fails only if another
// change of the same session succeeds meanwhile.
const updateAttempts = 32

// UpdateSession implements conversation.Store. It reads the session, calls change, and runs a script that stores the result if
// nobody has changed the settings since. If somebody has, it tries again with the session that the script returned.
func (s *Store) UpdateSession(ctx context.Context, owner conversation.Owner, sessionID string, change func(*conversation.Session) error) (conversation.Session, error) {
	tag := tagOfOwner(owner)
	view, err := s.run(ctx, getSessionScript, tag, []string{sessionKey(tag, sessionID)}, sessionID)
	if err != nil {
		return conversation.Session{}, err
	}
	for range updateAttempts {
		before, err := sessionOrGone(sessionID, view)
		if err != nil {
			return conversation.Session{}, err
		}
		after := before
		if err := change(&after); err != nil {
			return conversation.Session{}, err
		}
		if err := before.CheckPolicyChange(after.Context.RetentionPolicy); err != nil {
			return conversation.Session{}, err
		}
		reply, err := s.run(ctx, updateSessionScript, tag, []string{sessionKey(tag, sessionID)}, updateArgs(ctx, view, &before, &after)...)
		if err != nil {
			return conversation.Session{}, err
		}
		switch parts := list(reply); {
		case outcome(parts) == "gone":
			return conversation.Session{}, conversation.ErrSessionNotFound
		case outcome(parts) == "quota":
			return conversation.Session{}, quotaRefused(ctx, parts)
		case len(parts) != 2:
			return conversation.Session{}, updateSessionScript.malformed()
		case outcome(parts) == "updated":
			return readSession(sessionID, parts[1])
		default: // changed
			view = parts[1]
		}
	}
	return conversation.Session{}, fmt.Errorf("%w: %d changes of the session at once", conversation.ErrStoreBusy, updateAttempts)
}

// updateArgs returns the arguments of the script that replaces the settings of before with those of after. view is the result of
// settings_view for before.
func updateArgs(ctx context.Context, view any, before, after *conversation.Session) []any {
	fields := list(view)
	withMessages := *before
	withMessages.MessageCount = max(1, before.MessageCount)
	mayHaveMessages := withMessages.CheckPolicyChange(after.Context.RetentionPolicy) == nil
	args := []any{
		before.ID, fields[len(fields)-1], []byte(after.Metadata), after.Context.MaxTokens, boolean(after.Context.CompressionEnabled),
		string(after.Context.RetentionPolicy), boolean(mayHaveMessages),
	}
	return append(append(args, settingsArgs(after)...), auth.LimitsOf(ctx).StoredBytes)
}
