package embedded

import (
	"errors"
	"testing"

	"parley/auth"
	"parley/auth/limit"
)

func TestAdmit_TestKeyDailyCount_SurvivesRestart(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	owner := auth.Owner{Account: "a", Mode: auth.Test}
	p := auth.Principal{Account: owner.Account, Mode: owner.Mode, KeyID: "key_0000000000000000", Secret: auth.HashOf("secret")}
	admit := func(s *Store) error {
		return s.Admit(auth.WithAdmission(t.Context(), &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: 1000}}))
	}
	s := open(t, path)
	if _, err := s.CreateKey(t.Context(), auth.Key{Owner: owner, ID: p.KeyID, Secrets: []auth.Secret{{Hash: p.Secret}}}, ""); err != nil {
		t.Fatal(err)
	}
	for range limit.TestKeyRequestsPerDay - 1 {
		if err := admit(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if err := admit(s); err != nil {
		t.Errorf("the last request of the day, after a restart: %v", err)
	}
	var refused *auth.LimitError
	if err := admit(s); !errors.As(err, &refused) || refused.Decision.Refused != limit.ByDay {
		t.Errorf("one request over the limit: error %v", err)
	}
}
