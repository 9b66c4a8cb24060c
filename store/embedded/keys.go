package embedded

import (
	"context"
	"encoding/json"
	"errors"

	"parley/auth"
)

// KeyByHash implements auth.Store.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (auth.Key, error) {
	var key auth.Key
	err := s.view(ctx, func(r *reading) (err error) {
		key, err = r.key(hash)
		return err
	})
	return key, err
}

// CreateFirstKey implements auth.Store. A secret that is another account's key already is an error.
func (s *Store) CreateFirstKey(ctx context.Context, key auth.Key) (created bool, err error) {
	value, err := json.Marshal(&key)
	if err != nil {
		return false, err
	}
	return update(ctx, s, func(w *writing) (bool, error) {
		account := appendSized(nil, key.Account)
		if _, _, taken := w.span(accountsBucket, account).from(""); taken {
			return false, nil
		}
		if _, err := w.key(key.Hash); !errors.Is(err, auth.ErrInvalidToken) {
			return false, errors.Join(errors.New("the key's secret is in use already"), err)
		}
		if err := w.put(accountsBucket, append(account, key.ID...), key.Hash[:]); err != nil {
			return false, err
		}
		return true, w.put(keysBucket, key.Hash[:], value)
	})
}
