package redis

import (
	"context"
	"errors"

	"parley/auth"
)

var touchKeyScript = newScript("touch_key", idempotent)

// TouchKeys implements auth.Store, in one round trip to each server.
func (s *Store) TouchKeys(ctx context.Context, uses []auth.KeyUse) error {
	if len(uses) == 0 {
		return nil
	}
	calls := make([]call, len(uses))
	for i, use := range uses {
		key := keyKey(ownerTag(use.Owner), use.KeyID)
		calls[i] = call{script: touchKeyScript, keys: []string{key}, args: []any{use.At.UnixMilli()}}
	}
	_, errs := s.runAll(ctx, calls)
	return errors.Join(errs...)
}
