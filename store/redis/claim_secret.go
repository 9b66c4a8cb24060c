package redis

import (
	"context"
	"errors"

	"parley/auth"
	"parley/conversation"
)

var claimSecretScript = newScript("claim_secret", 0)

// claimSecret claims a secret for a key that is being created or rotated. The error is errSecretTaken if it is in use.
func (s *Store) claimSecret(ctx context.Context, hash auth.Hash) error {
	reply, err := s.run(ctx, claimSecretScript, "", []string{pointerKey(hash)}, keyChangeTimeout.Milliseconds())
	if err == nil && integer(reply) == 0 {
		err = errSecretTaken
	}
	return err
}

// unclaimSecret gives up the claim of a secret whose key could not be stored. If the store is away, the claim expires.
func (s *Store) unclaimSecret(ctx context.Context, hash auth.Hash, cause error) {
	if !errors.Is(cause, conversation.ErrUnavailable) {
		s.forget(ctx, hash)
	}
}
