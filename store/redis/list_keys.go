package redis

import (
	"context"

	"parley/auth"
)

var listKeysScript = newScript("list_keys", reads|admits)

// Keys implements auth.Store.
func (s *Store) Keys(ctx context.Context, owner auth.Owner) ([]auth.Key, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, listKeysScript, tag, []string{keyOrderKey(tag)})
	if err != nil {
		return nil, err
	}
	records, err := readKeys(owner, reply)
	var keys []auth.Key
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	return keys, err
}
