package redis

import (
	"context"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

var createSessionScript = newScript("create_session", admits|durable)

// CreateSession implements conversation.Store. The new id sorts after the ids of all the owner's sessions.
func (s *Store) CreateSession(ctx context.Context, owner conversation.Owner, session conversation.NewSession) (conversation.SessionCreated, error) {
	tag, config, limits, wanted := tagOfOwner(owner), session.Context, auth.LimitsOf(ctx), session.Session()
	key, digest := requestOf(session.Idempotency)
	args := []any{
		conversation.RandomText(randomLength), session.UserID, []byte(session.Metadata), config.MaxTokens, boolean(config.CompressionEnabled),
		string(config.RetentionPolicy), conversation.Lifetime.Milliseconds(), key, digest,
		limits.ActiveSessions, limits.StoredBytes,
	}
	args = append(args, settingsArgs(&wanted)...)
	counted := conversation.UsageOfSession()
	reply, err := s.run(ctx, createSessionScript, tag, []string{sessionsKey(tag)}, appendCounts(args, &counted)...)
	if err != nil {
		return conversation.SessionCreated{}, err
	}
	parts := list(reply)
	if outcome(parts) == "conflict" {
		return conversation.SessionCreated{}, conversation.ErrIdempotencyConflict
	} else if outcome(parts) == "quota" {
		return conversation.SessionCreated{}, quotaRefused(ctx, parts)
	} else if len(parts) != 3 {
		return conversation.SessionCreated{}, createSessionScript.malformed()
	}
	created, err := readSession(text(parts[1]), parts[2])
	return conversation.SessionCreated{Session: created, Replayed: outcome(parts) == "replayed"}, err
}

// quotaRefused returns the error for the result {'quota', name, used part} of a script.
func quotaRefused(ctx context.Context, parts []any) error {
	if len(parts) != 3 {
		return errRecord
	}
	return auth.QuotaRefused(ctx, limit.Quota(text(parts[1])), integer(parts[2]))
}

// requestOf returns the idempotency key and the digest of a request, for scripts. It returns "" and nil for a request without a
// key.
func requestOf(i *conversation.Idempotency) (key string, digest []byte) {
	if i == nil {
		return "", nil
	}
	return i.Key, i.Digest[:]
}
