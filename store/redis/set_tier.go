package redis

import (
	"context"
	"strconv"

	"parley/auth"
	"parley/auth/limit"
)

var setTierScript = newScript("set_tier", idempotent|durable)

// setTier sets an account's tier in both modes, and creates the account if it does not exist. If tier is "", an existing account
// keeps its tier, and a new account gets limit.Free. After a failure half-way, a repeat completes the change.
func (s *Store) setTier(ctx context.Context, account string, tier limit.Tier) error {
	version := ""
	for _, mode := range []string{auth.Live, auth.Test} {
		tag := tagOf(account, mode)
		reply, err := s.run(ctx, setTierScript, tag, []string{accountKey(tag), keyOrderKey(tag)},
			string(tier), version, string(limit.Free))
		if err != nil {
			return err
		}
		parts := list(reply)
		if len(parts) != 3 {
			return setTierScript.malformed()
		}
		tier, version = limit.Tier(text(parts[0])), strconv.FormatInt(integer(parts[1]), 10)
		keys, err := readKeys(auth.Owner{Account: account, Mode: mode}, parts[2])
		if err != nil {
			return err
		}
		var pointers []pointer
		for _, key := range keys {
			pointers = append(pointers, pointersTo(key)...)
		}
		if err := s.setPointers(ctx, pointers...); err != nil {
			return err
		}
	}
	return nil
}
