package redis

import (
	"context"

	"parley/auth"
)

var removePointerScript = newScript("remove_pointer", idempotent)

// removePointer removes the pointer of a secret if the pointer names this API key. If keyID is "", it removes the pointer if the
// secret is only claimed. A failure is harmless: every admission checks the record of the API key, and a claim expires.
func (s *Store) removePointer(ctx context.Context, hash auth.Hash, owner auth.Owner, keyID string) {
	_, _ = s.run(ctx, removePointerScript, "", []string{pointerKey(hash)}, owner.Account, owner.Mode, keyID)
}
