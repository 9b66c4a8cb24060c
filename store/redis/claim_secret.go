package redis

import (
	"context"
	"errors"

	"parley/auth"
	"parley/conversation"
)

var claimSecretScript = newScript("claim_secret", 0)

// claimSecret claims a secret for a key that is being created or rotated. If the secret is already in use or claimed, it returns
// errSecretTaken.
func (s *Store) claimSecret(ctx context.Context, hash auth.Hash) error {
	reply, err := s.run(ctx, claimSecretScript, "", []string{pointerKey(hash)}, keyChangeTimeout.Milliseconds())
	if err == nil && integer(reply) == 0 {
		err = errSecretTaken
	}
	return err
}

// unclaimSecret removes the claim of a secret after its key could not be stored. cause is the error of that attempt. If cause is
// conversation.ErrUnavailable, the key may have been stored, so the claim stays until it expires.
func (s *Store) unclaimSecret(ctx context.Context, hash auth.Hash, cause error) {
	if !errors.Is(cause, conversation.ErrUnavailable) {
		s.removePointer(ctx, hash, auth.Owner{}, "")
	}
}
