package redis

import (
	"context"

	"parley/auth"
)

var listKeysScript = newScript("list_keys", admits|idempotent)

// Keys implements auth.Store.
func (s *Store) Keys(ctx context.Context, owner auth.Owner, query auth.KeyQuery) (auth.KeyPage, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, listKeysScript, tag, []string{keyIndexKey(tag)}, millis(query.Before), query.Limit)
	if err != nil {
		return auth.KeyPage{}, err
	}
	parts := list(reply)
	if len(parts) == 0 {
		return auth.KeyPage{}, listKeysScript.malformed()
	}
	page := auth.KeyPage{}
	last := query.Before
	for _, fields := range parts[1:] {
		r, err := readKey(owner, fields)
		if err != nil {
			return auth.KeyPage{}, err
		}
		page.Keys, last = append(page.Keys, r.Key), r.Key.CreatedAt
	}
	if integer(parts[0]) == 1 {
		page.Next = last
	}
	return page, nil
}
