package redis

import (
	"context"

	"parley/auth"
)

var revokeKeyScript = newScript("revoke_key", admits|durable)

// RevokeKey implements auth.Store.
func (s *Store) RevokeKey(ctx context.Context, owner auth.Owner, keyID, actor string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tag := ownerTag(owner)
	reply, err := s.run(ctx, revokeKeyScript, tag, []string{keyKey(tag, keyID)}, auth.NewAuditID(), actor)
	if err != nil {
		return err
	}
	if text(reply) == "none" {
		return auth.ErrKeyNotFound
	}
	was, err := readKey(owner, reply)
	if err != nil {
		return err
	}
	var gone []pointer
	for _, secret := range was.Key.Secrets {
		gone = append(gone, pointer{hash: secret.Hash, version: was.version})
	}
	_ = s.setPointers(ctx, gone...) // if this fails, the key is revoked anyway: the key's record decides
	return nil
}
