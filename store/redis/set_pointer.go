package redis

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
)

var setPointerScript = newScript("set_pointer", idempotent|durable)

// The pointer of a claimed or removed secret expires after keyChangeTimeout. That is longer than creating or rotating a key
// takes.
const keyChangeTimeout = time.Minute

// pointer leads from the hash of a secret to its API key. It is written after the key's record, and has the version of the
// record. An older pointer never overwrites a newer one.
type pointer struct {
	hash    auth.Hash
	version int64
	who     *presenter // nil if the secret was removed
	expires time.Time  // when the secret stops working; zero for never
}

// presenter holds what auth needs to verify a secret.
type presenter struct {
	Key  auth.Key   `json:"key"`  // without LastUsedAt
	Tier limit.Tier `json:"tier"` // only nodes of earlier versions use it: see keyRecord.Tier
}

// pointersTo returns a pointer for each secret of an API key.
func pointersTo(r keyRecord) []pointer {
	who := &presenter{r.Key, r.Tier}
	who.Key.LastUsedAt = time.Time{}
	var pointers []pointer
	for i, secret := range r.Key.Secrets {
		pointers = append(pointers, pointer{secret.Hash, r.version, who, r.Key.SecretExpiry(i)})
	}
	return pointers
}

// setPointers writes pointers in one round trip to each server.
func (s *Store) setPointers(ctx context.Context, pointers ...pointer) error {
	if len(pointers) == 0 {
		return nil
	}
	calls := make([]call, len(pointers))
	for i, p := range pointers {
		who, expires := []byte(nil), p.expires
		if p.who == nil {
			expires = time.Now().Add(keyChangeTimeout)
		} else {
			var err error
			if who, err = json.Marshal(p.who); err != nil {
				return err
			}
		}
		calls[i] = call{script: setPointerScript, keys: []string{pointerKey(p.hash)}, args: []any{p.version, who, millis(expires)}}
	}
	_, errs := s.runAll(ctx, calls)
	return errors.Join(errs...)
}

// KeyByHash implements auth.Store. The key lacks LastUsedAt. It takes two round trips, because the pointer names the account, and
// the account's record has the tier. If each pointer had the tier, a new tier would have to be written to all of them.
func (s *Store) KeyByHash(ctx context.Context, hash auth.Hash) (auth.KeyMatch, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	value, err := s.db.Get(ctx, pointerKey(hash)).Result()
	if errors.Is(err, redis.Nil) {
		return auth.KeyMatch{}, auth.ErrInvalidToken
	}
	if err != nil {
		return auth.KeyMatch{}, fault(err)
	}
	found, err := readPointer(value, hash)
	if err != nil {
		return auth.KeyMatch{}, err
	}
	tier, err := s.db.HGet(ctx, accountKey(tagOf(found.Key.Account, auth.Live)), "tier").Result()
	switch {
	case err == nil:
		found.Tier = limit.Tier(tier)
	case errors.Is(err, redis.Nil): // the first key is a test key, and its creation failed half-way
		found.Tier = limit.Free
	default:
		return auth.KeyMatch{}, fault(err)
	}
	return found, nil
}

// readPointer reads a pointer: the API key, and the index of the secret with the given hash. If the secret is only claimed, or
// was removed, the error is auth.ErrInvalidToken.
func readPointer(value string, hash auth.Hash) (auth.KeyMatch, error) {
	_, who, ok := strings.Cut(value, " ")
	if !ok || who == "" { // claimed or removed
		return auth.KeyMatch{}, auth.ErrInvalidToken
	}
	var is presenter
	if json.Unmarshal([]byte(who), &is) != nil {
		return auth.KeyMatch{}, errRecord
	}
	i := slices.IndexFunc(is.Key.Secrets, func(s auth.Secret) bool { return s.Hash == hash })
	if i < 0 {
		return auth.KeyMatch{}, errRecord
	}
	return auth.KeyMatch{Key: is.Key, Secret: i}, nil
}
