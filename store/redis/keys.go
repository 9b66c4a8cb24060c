package redis

import (
	"context"

	"parley/auth"
)

// Admit implements auth.Store.
func (s *Store) Admit(ctx context.Context) error {
	a := auth.AdmissionOf(ctx)
	_, err := s.run(ctx, admitScript, ownerTag(a.Principal.Owner()), nil)
	return err
}

// KeyAlive implements auth.Store.
func (s *Store) KeyAlive(ctx context.Context, p auth.Principal) error {
	return nil
}

// hashText returns a secret's hash as it stands in names and records.
func hashText(hash auth.Hash) string {
	text, _ := hash.MarshalText() // never fails
	return string(text)
}

// forget removes what is remembered of a secret that does not work any more.
func (s *Store) forget(ctx context.Context, hash auth.Hash) {
	_ = s.db.Del(ctx, pointerKey(hash)).Err() // it only spares a trip
}
