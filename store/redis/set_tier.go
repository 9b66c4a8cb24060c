package redis

import (
	"context"

	"parley/auth"
	"parley/auth/limit"
)

var setTierScript = newScript("set_tier", idempotent|durable)

// setTier sets an account's tier, and creates the account if it does not exist. The audit entry names actor. If tier is "", an
// existing account keeps its tier, and a new account gets limit.Free.
func (s *Store) setTier(ctx context.Context, account string, tier limit.Tier, actor string) error {
	tag := tagOf(account, auth.Live)
	_, err := s.run(ctx, setTierScript, tag, []string{accountKey(tag)}, string(tier), string(limit.Free),
		auth.NewAuditID(), actor)
	return err
}
