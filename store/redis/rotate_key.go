package redis

import (
	"context"
	"errors"

	"parley/auth"
	"parley/conversation"
)

var rotateKeyScript = newScript("rotate_key", admits|durable)

// RotateKey implements auth.Store.
func (s *Store) RotateKey(
	ctx context.Context, owner auth.Owner, keyID string, secret auth.Hash, prefix, actor string,
) (auth.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.claimSecret(ctx, secret); err != nil {
		return auth.Key{}, err
	}
	reply, err := s.rotate(ctx, owner, keyID, secret, prefix, actor, false)
	if errors.Is(err, conversation.ErrUnavailable) {
		// Find out whether only the reply was lost. If the caller had to rotate again, the secret that clients use would be
		// removed.
		if done, again := s.rotate(auth.WithAdmission(ctx, nil), owner, keyID, secret, prefix, actor, true); again == nil {
			reply, err = done, nil
		}
	}
	if err != nil {
		s.unclaimSecret(ctx, secret, err)
		return auth.Key{}, err
	}
	parts := list(reply)
	if len(parts) != 2 {
		return auth.Key{}, rotateKeyScript.malformed()
	}
	rotated, err := readKey(owner, parts[0])
	if err != nil {
		return auth.Key{}, err
	}
	pointers := pointersTo(rotated)
	if gone := text(parts[1]); gone != "" {
		hash, err := readHash(gone)
		if err != nil {
			return auth.Key{}, err
		}
		pointers = append(pointers, pointer{hash: hash, version: rotated.version})
	}
	return rotated.Key, s.setPointers(ctx, pointers...)
}

// rotate gives a key a new secret, and returns the script's result. If look is set, rotate changes nothing: it returns
// auth.ErrKeyNotFound unless secret is already the key's newest secret.
func (s *Store) rotate(
	ctx context.Context, owner auth.Owner, keyID string, secret auth.Hash, prefix, actor string, look bool,
) (any, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, rotateKeyScript, tag, []string{keyKey(tag, keyID)},
		hashText(secret), prefix, auth.GracePeriod.Milliseconds(), boolean(look), auth.NewAuditID(), actor)
	if err == nil && text(reply) == "none" {
		err = auth.ErrKeyNotFound
	}
	return reply, err
}
