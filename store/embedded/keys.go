package embedded

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// KeyByHash implements auth.Store.
func (s *Store) KeyByHash(ctx context.Context, hash auth.Hash) (auth.KeyMatch, error) {
	var found auth.KeyMatch
	err := s.view(ctx, func(r *reading) error {
		at := r.bucket(secretsBucket).Get(hash[:])
		if at == nil {
			return auth.ErrInvalidToken
		}
		key, err := r.key(at)
		if err != nil {
			return err
		}
		i, ok := key.FindSecret(hash, r.now.Go())
		if !ok {
			return auth.ErrInvalidToken
		}
		found = auth.KeyMatch{Key: key, Secret: i, Tier: limit.Tier(r.bucket(accountsBucket).Get(accountKey(key.Account)))}
		return nil
	})
	return found, err
}

// CreateKey implements auth.Store.
func (s *Store) CreateKey(ctx context.Context, key auth.Key, tier limit.Tier) (auth.Key, error) {
	most := auth.LimitsOf(ctx).Keys
	return update(ctx, s, func(w *writing) (auth.Key, error) {
		if most > 0 && w.activeKeys(key.Owner, most) == most {
			return auth.Key{}, &auth.QuotaError{Quota: limit.QuotaKeys, Used: most, Limit: most}
		}
		if err := w.mayGrow(); err != nil {
			return auth.Key{}, err
		}
		return w.createKey(key, tier)
	})
}

// CreateFirstKey implements auth.Store.
func (s *Store) CreateFirstKey(ctx context.Context, key auth.Key) (created bool, err error) {
	return update(ctx, s, func(w *writing) (bool, error) {
		if w.bucket(accountsBucket).Get(accountKey(key.Account)) != nil {
			return false, nil
		}
		_, err := w.createKey(key, "")
		return err == nil, err
	})
}

// Keys implements auth.Store. If the record of an ended key is due for removal, Keys runs as a write, which removes it first.
func (s *Store) Keys(ctx context.Context, owner auth.Owner, query auth.KeyQuery) (auth.KeyPage, error) {
	var page auth.KeyPage
	due := false
	err := s.view(ctx, func(r *reading) (err error) {
		page, err = r.keyPage(owner, query)
		due = len(r.purgeable(owner, 1)) > 0
		return err
	})
	if err != nil || !due {
		return page, err
	}
	return update(ctx, s, func(w *writing) (auth.KeyPage, error) {
		if err := w.purgeKeys(owner); err != nil {
			return auth.KeyPage{}, err
		}
		return w.keyPage(owner, query)
	})
}

func (r *reading) keyPage(owner auth.Owner, query auth.KeyQuery) (page auth.KeyPage, err error) {
	before := ""
	if !query.Before.IsZero() {
		before = string(appendTime(nil, conversation.TimeOf(query.Before)))
	}
	order := r.span(keyOrderBucket, ownerKey(ownerOf(owner)))
	for suffix, _, ok := order.before(before); ok; suffix, _, ok = order.prev() {
		if len(page.Keys) == query.Limit {
			page.Next = page.Keys[query.Limit-1].CreatedAt
			break
		}
		if len(suffix) < timeLength {
			return page, errRecord
		}
		key, err := r.key(keyKey(owner, string(suffix[timeLength:])))
		if err != nil {
			return page, err
		}
		page.Keys = append(page.Keys, key)
	}
	return page, nil
}

// RevokeKey implements auth.Store. A sweep overwrites the bytes of the removed hashes soon after (see Scrubbed).
func (s *Store) RevokeKey(ctx context.Context, owner auth.Owner, keyID, actor string) error {
	return s.submit(ctx, func(w *writing) error {
		key, err := w.keyNotRevoked(owner, keyID)
		if err != nil {
			return err
		}
		gone := key.Secrets
		key.Revoke()
		if err := w.endKey(&key); err != nil {
			return err
		}
		if err := w.audit(owner, auth.AuditOf(auth.KeyRevoked, actor, &key)); err != nil {
			return err
		}
		return w.replaceKey(&key, gone)
	})
}

// RotateKey implements auth.Store.
func (s *Store) RotateKey(
	ctx context.Context, owner auth.Owner, keyID string, secret auth.Hash, prefix, actor string,
) (auth.Key, error) {
	return update(ctx, s, func(w *writing) (auth.Key, error) {
		key, err := w.keyNotRevoked(owner, keyID)
		if err != nil {
			return auth.Key{}, err
		}
		if key.Status(w.now.Go()) != auth.Active {
			return auth.Key{}, auth.ErrKeyNotFound
		}
		if w.bucket(secretsBucket).Get(secret[:]) != nil {
			return auth.Key{}, errSecretTaken
		}
		if err := w.mayGrow(); err != nil {
			return auth.Key{}, err
		}
		gone := key.Secrets[1:]
		key.Rotate(secret, prefix, w.now.Go())
		if err := w.audit(owner, auth.AuditOf(auth.KeyRotated, actor, &key)); err != nil {
			return auth.Key{}, err
		}
		return key, w.replaceKey(&key, gone)
	})
}

// TouchKeys implements auth.Store.
func (s *Store) TouchKeys(ctx context.Context, uses []auth.KeyUse) error {
	return s.submit(ctx, func(w *writing) error {
		for _, use := range uses {
			key, err := w.key(keyKey(use.Owner, use.KeyID))
			if errors.Is(err, auth.ErrKeyNotFound) || err == nil && !use.At.After(key.LastUsedAt) {
				continue
			}
			if err != nil {
				return err
			}
			key.LastUsedAt = conversation.TimeOf(use.At).Go()
			if err := w.putKey(&key); err != nil {
				return err
			}
		}
		return nil
	})
}

var errSecretTaken = errors.New("embedded: another key has the same secret or id")

func (w *writing) createKey(key auth.Key, tier limit.Tier) (auth.Key, error) {
	at := keyKey(key.Owner, key.ID)
	if w.bucket(keysBucket).Get(at) != nil || w.bucket(secretsBucket).Get(key.Secrets[0].Hash[:]) != nil {
		return auth.Key{}, errSecretTaken
	}
	if err := w.purgeKeys(key.Owner); err != nil {
		return auth.Key{}, err
	}
	created := w.now
	if newest, _, ok := w.span(keyOrderBucket, appendOwner(nil, ownerOf(key.Owner))).before(""); ok && len(newest) >= timeLength {
		created = max(created, conversation.Time(binary.BigEndian.Uint64(newest))+1)
	}
	key.CreatedAt = created.Go()
	key.Secrets = []auth.Secret{{Hash: key.Secrets[0].Hash, Since: key.CreatedAt}}
	entry := auth.AuditOf(auth.KeyCreated, key.CreatedBy, &key)
	entry.Tier = tier
	if err := w.audit(key.Owner, entry); err != nil {
		return auth.Key{}, err
	}
	if err := w.putTier(&key, tier); err != nil {
		return auth.Key{}, err
	}
	if err := w.put(keyOrderBucket, keyOrderKey(&key), nil); err != nil {
		return auth.Key{}, err
	}
	if err := w.put(keyEndsBucket, keyEndKey(key.Owner, endOf(&key), key.ID), nil); err != nil {
		return auth.Key{}, err
	}
	return key, w.replaceKey(&key, nil)
}

// putTier creates the account of a new key, or changes its tier. If tier is "", an existing account keeps its tier, and a new
// account gets limit.Free.
func (w *writing) putTier(key *auth.Key, tier limit.Tier) error {
	before := w.bucket(accountsBucket).Get(accountKey(key.Account))
	if before != nil && (tier == "" || tier == limit.Tier(before)) {
		return nil
	}
	if before != nil {
		changed := auth.AuditEntry{ID: auth.NewAuditID(), Action: auth.TierChanged, Actor: key.CreatedBy, Tier: tier}
		if err := w.audit(auth.Owner{Account: key.Account, Mode: auth.Live}, changed); err != nil {
			return err
		}
	}
	if tier == "" {
		tier = limit.Free
	}
	return w.put(accountsBucket, accountKey(key.Account), []byte(tier))
}

// keyNotRevoked returns a key that is not revoked, or auth.ErrKeyNotFound.
func (w *writing) keyNotRevoked(owner auth.Owner, keyID string) (auth.Key, error) {
	key, err := w.key(keyKey(owner, keyID))
	if err == nil && key.Revoked {
		err = auth.ErrKeyNotFound
	}
	return key, err
}

// replaceKey writes a key and the index entries of its secrets. It removes the index entries of the secrets in gone.
func (w *writing) replaceKey(key *auth.Key, gone []auth.Secret) error {
	for _, secret := range gone {
		w.remove = true
		if err := w.delete(secretsBucket, secret.Hash[:]); err != nil {
			return err
		}
	}
	at := keyKey(key.Owner, key.ID)
	for _, secret := range key.Secrets {
		if err := w.put(secretsBucket, secret.Hash[:], at); err != nil {
			return err
		}
	}
	return w.putKey(key)
}

func (w *writing) putKey(key *auth.Key) error {
	value, err := json.Marshal(key)
	if err != nil {
		return err
	}
	return w.put(keysBucket, keyKey(key.Owner, key.ID), value)
}

// key returns the API key that keysBucket contains under the key at. If there is no such entry, it returns auth.ErrKeyNotFound.
func (r *reading) key(at []byte) (auth.Key, error) {
	var k auth.Key
	value := r.bucket(keysBucket).Get(at)
	if value == nil {
		return k, auth.ErrKeyNotFound
	}
	if json.Unmarshal(value, &k) != nil {
		return auth.Key{}, errRecord
	}
	return k, nil
}

// ownerOf converts an owner to the type that the keys of the buckets use.
func ownerOf(o auth.Owner) conversation.Owner {
	return conversation.Owner{Account: o.Account, Mode: conversation.Mode(o.Mode)}
}

func accountKey(account string) []byte { return appendSized(nil, account) }

func keyKey(owner auth.Owner, keyID string) []byte { return append(ownerKey(ownerOf(owner)), keyID...) }

func keyOrderKey(key *auth.Key) []byte {
	return append(appendTime(ownerKey(ownerOf(key.Owner)), conversation.TimeOf(key.CreatedAt)), key.ID...)
}
