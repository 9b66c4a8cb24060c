package redis

import (
	"context"
	"encoding/json"
	"errors"

	"parley/auth"
	"parley/auth/limit"
)

var createKeyScript = newScript("create_key", admits|durable)

var (
	errSecretTaken = errors.New("redis: the secret or the id of the key is already in use")
	errHadKeys     = errors.New("redis: the account has already had a key")
)

// CreateKey implements auth.Store. After conversation.ErrUnavailable, the key may exist. Then Keys lists the key, and RevokeKey
// can revoke it.
func (s *Store) CreateKey(ctx context.Context, key auth.Key, tier limit.Tier) (auth.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	created, err := s.createKey(ctx, key, tier, false)
	if err != nil {
		return auth.Key{}, err
	}
	if tier != "" || key.Mode == auth.Test {
		if err := s.setTier(ctx, key.Account, tier, key.CreatedBy); err != nil {
			return auth.Key{}, err
		}
	}
	return created.Key, nil
}

// CreateFirstKey implements auth.Store. If two nodes call it at the same time for the same mode, at most one creates a key. For
// different modes, both may create a key.
func (s *Store) CreateFirstKey(ctx context.Context, key auth.Key) (created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if had, err := s.hadKeys(ctx, key.Account); err != nil || had {
		return false, err
	}
	_, err = s.createKey(ctx, key, "", true)
	if errors.Is(err, errHadKeys) {
		return false, nil
	}
	if err == nil && key.Mode == auth.Test {
		err = s.setTier(ctx, key.Account, "", key.CreatedBy)
	}
	return err == nil, err
}

// hadKeys reports whether an account exists. An account is created with its first key.
func (s *Store) hadKeys(ctx context.Context, account string) (bool, error) {
	n, err := s.db.Exists(ctx, accountKey(tagOf(account, auth.Live))).Result()
	return n > 0, fault(err)
}

// createKey stores an API key, and then the pointer of its secret. A new account gets the tier; "" means limit.Free. If first is
// set, and the account already has a record in this mode, createKey returns errHadKeys.
func (s *Store) createKey(ctx context.Context, key auth.Key, tier limit.Tier, first bool) (keyRecord, error) {
	tag, hash, named := ownerTag(key.Owner), key.Secrets[0].Hash, tier
	if tier == "" {
		tier = limit.Free
	}
	scopes, err := json.Marshal(key.Scopes)
	if err != nil {
		return keyRecord{}, err
	}
	if err := s.claimSecret(ctx, hash); err != nil {
		return keyRecord{}, err
	}
	most := auth.LimitsOf(ctx).Keys
	reply, err := s.run(ctx, createKeyScript, tag, []string{keyKey(tag, key.ID), accountKey(tag)},
		key.ID, key.Name, scopes, key.Prefix, millis(key.ExpiresAt), hashText(hash), boolean(first), string(tier), most, key.CreatedBy,
		auth.NewAuditID(), string(named))
	if err == nil {
		err = map[string]error{"taken": errSecretTaken, "had": errHadKeys}[text(reply)]
	}
	if parts := list(reply); len(parts) == 2 && outcome(parts) == "quota" {
		err = &auth.QuotaError{Quota: limit.QuotaKeys, Used: integer(parts[1]), Limit: most}
	}
	if err != nil {
		s.unclaimSecret(ctx, hash, err)
		return keyRecord{}, err
	}
	created, err := readKey(key.Owner, reply)
	if err != nil {
		return keyRecord{}, err
	}
	return created, s.setPointers(ctx, pointersTo(created)...)
}
