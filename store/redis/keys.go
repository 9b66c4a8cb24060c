package redis

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

var (
	createKeyScript = newScript("create_key", admits|durable)
	rotateKeyScript = newScript("rotate_key", admits|durable)
	revokeKeyScript = newScript("revoke_key", admits|durable)
	keysScript      = newScript("keys", reads|admits)
	touchKeyScript  = newScript("touch_key", idempotent)
	setTierScript   = newScript("set_tier", idempotent|durable)
)

// errSecretTaken says that a secret or an id is in use.
var errSecretTaken = errors.New("redis: the secret or the id of a key is in use already")

// The truth about a key is in its account's slot; a pointer, outside, says who presents a secret, so that a key that was
// never seen costs one trip (pointers.go). A key is changed in its slot first; where a node dies before it has told the
// pointers, they name what works no more, and every admission looks at the truth.

// Admit implements auth.Store.
func (s *Store) Admit(ctx context.Context) error {
	a := auth.AdmissionOf(ctx)
	if !a.Pending() {
		return nil
	}
	_, err := s.run(ctx, admitScript, ownerTag(a.Principal.Owner()), nil)
	return err
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	if p.Secret == (auth.Hash{}) { // the declared key, of which the store knows nothing
		return auth.ErrInvalidToken
	}
	ctx = auth.WithAdmission(ctx, &auth.Admission{Principal: p})
	_, err := s.run(ctx, checkScript, ownerTag(p.Owner()), nil)
	return err
}

// KeyByHash implements auth.Store. It does not know when the key was last used.
func (s *Store) KeyByHash(ctx context.Context, hash auth.Hash) (auth.KeyMatch, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pointer, err := s.db.Get(ctx, pointerKey(hash)).Result()
	if errors.Is(err, redis.Nil) {
		return auth.KeyMatch{}, auth.ErrInvalidToken
	}
	if err != nil {
		return auth.KeyMatch{}, fault(err)
	}
	return readPointer(pointer, hash)
}

// CreateKey implements auth.Store. Where it fails because the store is away, the key may be listed; its secret does not
// work.
func (s *Store) CreateKey(ctx context.Context, key auth.Key, tier limit.Tier) (auth.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	created, err := s.createKey(ctx, key, tier, false)
	if err != nil {
		return auth.Key{}, err
	}
	if tier != "" || key.Mode == auth.Test {
		if err := s.setTier(ctx, key.Account, tier); err != nil {
			return auth.Key{}, err
		}
	}
	return created.Key, nil
}

// errHadKeys says that an account has had a key.
var errHadKeys = errors.New("redis: the account has had a key")

// CreateFirstKey implements auth.Store. For a test key, two nodes at once may both create one.
func (s *Store) CreateFirstKey(ctx context.Context, key auth.Key) (created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if had, err := s.hadKeys(ctx, key.Account); err != nil || had {
		return false, err
	}
	_, err = s.createKey(ctx, key, "", true)
	if errors.Is(err, errHadKeys) {
		return false, nil
	}
	if err == nil && key.Mode == auth.Test {
		err = s.setTier(ctx, key.Account, "")
	}
	return err == nil, err
}

// hadKeys reports whether an account has come into being.
func (s *Store) hadKeys(ctx context.Context, account string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	n, err := s.db.Exists(ctx, accountKey(tagOf(account, auth.Live))).Result()
	return n > 0, fault(err)
}

// createKey stores a key in its slot, and points to it. The tier is that of a new account.
func (s *Store) createKey(ctx context.Context, key auth.Key, tier limit.Tier, first bool) (record, error) {
	tag, hash, only := ownerTag(key.Owner), key.Secrets[0].Hash, ""
	if tier == "" {
		tier = limit.Free
	}
	if first {
		only = "1"
	}
	scopes, err := json.Marshal(key.Scopes)
	if err != nil {
		return record{}, err
	}
	if err := s.claim(ctx, hash); err != nil {
		return record{}, err
	}
	reply, err := s.run(ctx, createKeyScript, tag, []string{keyKey(tag, key.ID), keyOrderKey(tag), accountKey(tag)},
		key.ID, key.Name, scopes, key.Prefix, millis(key.ExpiresAt), hashText(hash), keyKey(tag, ""), only, string(tier))
	refused := map[any]error{"taken": errSecretTaken, "had": errHadKeys}[text(reply)]
	if err == nil {
		err = refused
	}
	if err != nil {
		s.unclaim(ctx, hash, err)
		return record{}, err
	}
	created, err := readRecord(key.Owner, reply)
	if err != nil {
		return record{}, err
	}
	return created, s.point(ctx, pointersTo(created)...)
}

// setTier sets an account's tier in both of its modes; "" leaves it, but has the account come into being. Done again after it
// failed half-way, it goes the rest of the way.
func (s *Store) setTier(ctx context.Context, account string, tier limit.Tier) error {
	version := ""
	for _, mode := range []string{auth.Live, auth.Test} {
		tag := tagOf(account, mode)
		reply, err := s.run(ctx, setTierScript, tag, []string{accountKey(tag), keyOrderKey(tag)},
			string(tier), keyKey(tag, ""), version, string(limit.Free))
		if err != nil {
			return err
		}
		parts, _ := reply.([]any)
		if len(parts) != 3 {
			return setTierScript.malformed()
		}
		tier, version = limit.Tier(text(parts[0])), strconv.FormatInt(integer(parts[1]), 10)
		keys, err := readRecords(auth.Owner{Account: account, Mode: mode}, parts[2])
		if err != nil {
			return err
		}
		var pointers []pointer
		for _, r := range keys {
			pointers = append(pointers, pointersTo(r)...)
		}
		if err := s.point(ctx, pointers...); err != nil {
			return err
		}
	}
	return nil
}

// Keys implements auth.Store.
func (s *Store) Keys(ctx context.Context, owner auth.Owner) ([]auth.Key, error) {
	tag := ownerTag(owner)
	reply, err := s.run(ctx, keysScript, tag, []string{keyOrderKey(tag)}, keyKey(tag, ""))
	if err != nil {
		return nil, err
	}
	records, err := readRecords(owner, reply)
	var keys []auth.Key
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	return keys, err
}

// RevokeKey implements auth.Store.
func (s *Store) RevokeKey(ctx context.Context, owner auth.Owner, keyID string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	tag := ownerTag(owner)
	reply, err := s.run(ctx, revokeKeyScript, tag, []string{keyKey(tag, keyID)})
	if err != nil {
		return err
	}
	if text(reply) == "none" {
		return auth.ErrKeyNotFound
	}
	was, err := readRecord(owner, reply)
	if err != nil {
		return err
	}
	var gone []pointer
	for _, secret := range was.Key.Secrets {
		gone = append(gone, pointer{hash: secret.Hash, version: was.version})
	}
	_ = s.point(ctx, gone...) // the key is revoked, whatever pointers say
	return nil
}

// RotateKey implements auth.Store.
func (s *Store) RotateKey(ctx context.Context, owner auth.Owner, keyID string, secret auth.Hash, prefix string) (auth.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := s.claim(ctx, secret); err != nil {
		return auth.Key{}, err
	}
	reply, err := s.rotate(ctx, owner, keyID, secret, prefix, false)
	if errors.Is(err, conversation.ErrUnavailable) {
		// If only the reply was lost, and the caller tried again, the secret that clients use would be one too old.
		if done, again := s.rotate(auth.WithAdmission(ctx, nil), owner, keyID, secret, prefix, true); again == nil {
			reply, err = done, nil
		}
	}
	if err != nil {
		s.unclaim(ctx, secret, err)
		return auth.Key{}, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return auth.Key{}, rotateKeyScript.malformed()
	}
	rotated, err := readRecord(owner, parts[0])
	if err != nil {
		return auth.Key{}, err
	}
	pointers := pointersTo(rotated)
	if gone := text(parts[1]); gone != "" {
		hash, err := readHash(gone)
		if err != nil {
			return auth.Key{}, err
		}
		pointers = append(pointers, pointer{hash: hash, version: rotated.version})
	}
	return rotated.Key, s.point(ctx, pointers...)
}

// rotate gives a key a new secret in its slot, or only looks whether it has it.
func (s *Store) rotate(ctx context.Context, owner auth.Owner, keyID string, secret auth.Hash, prefix string, look bool) (any, error) {
	tag, only := ownerTag(owner), ""
	if look {
		only = "1"
	}
	reply, err := s.run(ctx, rotateKeyScript, tag, []string{keyKey(tag, keyID)}, hashText(secret), prefix, auth.GracePeriod.Milliseconds(), only)
	if err == nil && text(reply) == "none" {
		err = auth.ErrKeyNotFound
	}
	return reply, err
}

// TouchKeys implements auth.Store: in one trip a server.
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

// record is a key as it is kept in its slot.
type record struct {
	Key     auth.Key
	Tier    limit.Tier // of the account
	version int64      // counts the changes of what pointers say
}

func readRecords(owner auth.Owner, reply any) ([]record, error) {
	var records []record
	all, _ := reply.([]any)
	for _, fields := range all {
		r, err := readRecord(owner, fields)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// readRecord reads a key from its fields (lua/keys.lua).
func readRecord(owner auth.Owner, reply any) (r record, err error) {
	flat, _ := reply.([]any)
	is := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		is[text(flat[i])] = text(flat[i+1])
	}
	r.version, err = strconv.ParseInt(is["version"], 10, 64)
	if err != nil || is["id"] == "" {
		return r, errRecord
	}
	r.Tier = limit.Tier(is["tier"])
	r.Key = auth.Key{
		Owner: owner, ID: is["id"], Name: is["name"], Prefix: is["prefix"], CreatedAt: instant(is["created"]),
		ExpiresAt: instant(is["expires"]), LastUsedAt: instant(is["used"]), Revoked: is["revoked"] != "",
	}
	if json.Unmarshal([]byte(is["scopes"]), &r.Key.Scopes) != nil {
		return r, errRecord
	}
	for _, f := range []struct{ hash, since, until string }{{"secret", "since", ""}, {"previous", "previousSince", "until"}} {
		if is[f.hash] == "" {
			continue
		}
		hash, err := readHash(is[f.hash])
		if err != nil {
			return r, err
		}
		r.Key.Secrets = append(r.Key.Secrets, auth.Secret{Hash: hash, Since: instant(is[f.since]), Until: instant(is[f.until])})
	}
	return r, nil
}

// errRecord says that a record is not as we write them.
var errRecord = errors.New("redis: a record is malformed")

// hashText returns a secret's hash as it stands in names and records.
func hashText(hash auth.Hash) string {
	text, _ := hash.MarshalText() // never fails
	return string(text)
}

func readHash(text string) (hash auth.Hash, err error) {
	if hash.UnmarshalText([]byte(text)) != nil {
		err = errRecord
	}
	return hash, err
}

// millis returns a time as scripts take it: in milliseconds, "" for none.
func millis(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// instant reads what millis wrote; what is not a time is none.
func instant(text string) time.Time {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// text returns a reply that is a text; "" if it is none.
func text(reply any) string {
	text, _ := reply.(string)
	return text
}

// integer returns a reply that is a number; 0 if it is none.
func integer(reply any) int64 {
	n, _ := reply.(int64)
	return n
}
