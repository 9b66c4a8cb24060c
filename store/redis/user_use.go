package redis

import (
	"context"

	"parley/auth"
	"parley/auth/limit"
)

var userUseScript = newScript("user_use", reads)

// UserUse implements auth.Store.
func (s *Store) UserUse(ctx context.Context, owner auth.Owner, userID string) (limit.UserUse, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, userUseScript, tag, []string{userRequestsKey(tag, userID), userTokensKey(tag, userID)})
	if err != nil {
		return limit.UserUse{}, err
	}
	parts := list(reply)
	if len(parts) != 2 {
		return limit.UserUse{}, userUseScript.malformed()
	}
	return limit.UserUse{Requests: int(integer(parts[0])), Tokens: int(integer(parts[1]))}, nil
}
