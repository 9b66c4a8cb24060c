package redis

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

var (
	claimScript = newScript("claim_secret", 0)
	pointScript = newScript("point", idempotent|durable)
)

// inFlight is longer than any change of a key is under way: for so long a claim of a secret, and the mark of one that is
// gone, are kept.
const inFlight = time.Minute

// pointer says who presents a secret. It is written after the key has changed in its slot, and carries the key's
// version, so that what is older never overwrites what is newer.
type pointer struct {
	hash    auth.Hash
	version int64
	who     *who      // nil: nobody any more
	end     time.Time // when the secret stops working; zero is never
}

// who is what a pointer says of a secret: all that verification needs.
type who struct {
	Key  auth.Key   `json:"key"` // without its last use
	Tier limit.Tier `json:"tier"`
}

// pointersTo returns the pointers to a key.
func pointersTo(r record) []pointer {
	is := &who{r.Key, r.Tier}
	is.Key.LastUsedAt = time.Time{}
	var pointers []pointer
	for i, secret := range r.Key.Secrets {
		pointers = append(pointers, pointer{secret.Hash, r.version, is, r.Key.SecretExpiry(i)})
	}
	return pointers
}

// readPointer returns who presents the secret of that hash by what its pointer says.
func readPointer(value string, hash auth.Hash) (auth.KeyMatch, error) {
	_, said, ok := strings.Cut(value, " ")
	if !ok || said == "" { // claimed, or gone
		return auth.KeyMatch{}, auth.ErrInvalidToken
	}
	var is who
	if json.Unmarshal([]byte(said), &is) != nil {
		return auth.KeyMatch{}, errRecord
	}
	i := slices.IndexFunc(is.Key.Secrets, func(s auth.Secret) bool { return s.Hash == hash })
	if i < 0 {
		return auth.KeyMatch{}, errRecord
	}
	return auth.KeyMatch{Key: is.Key, Tier: is.Tier, Secret: i}, nil
}

// point writes pointers, in one trip a server.
func (s *Store) point(ctx context.Context, pointers ...pointer) error {
	if len(pointers) == 0 {
		return nil
	}
	calls := make([]call, len(pointers))
	for i, p := range pointers {
		said, end := []byte(nil), p.end
		if p.who == nil {
			end = time.Now().Add(inFlight)
		} else {
			var err error
			if said, err = json.Marshal(p.who); err != nil {
				return err
			}
		}
		calls[i] = call{script: pointScript, keys: []string{pointerKey(p.hash)}, args: []any{p.version, said, millis(end)}}
	}
	_, errs := s.runAll(ctx, calls)
	return errors.Join(errs...)
}

// claim claims a secret for a key that is to be made, or says that it is in use.
func (s *Store) claim(ctx context.Context, hash auth.Hash) error {
	reply, err := s.run(ctx, claimScript, "", []string{pointerKey(hash)}, inFlight.Milliseconds())
	if err == nil && integer(reply) == 0 {
		err = errSecretTaken
	}
	return err
}

// unclaim gives a secret up for which no key could be made. Where the store is away, the claim runs out.
func (s *Store) unclaim(ctx context.Context, hash auth.Hash, why error) {
	if !errors.Is(why, conversation.ErrUnavailable) {
		s.forget(ctx, hash)
	}
}

// forget removes the pointer of a secret that does not work. It only spares a trip: that it fails does no harm.
func (s *Store) forget(ctx context.Context, hash auth.Hash) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_ = s.db.Del(ctx, pointerKey(hash)).Err()
}
