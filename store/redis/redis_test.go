package redis

import (
	"context"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/store/redis/redistest"
)

// open returns a store on a server of its own.
func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAServerThatCanBeWrittenToIsReady(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	must(t, s.Ping(t.Context()))
}

func admission(p auth.Principal) (context.Context, *auth.Admission) {
	a := &auth.Admission{Principal: p, Figures: limit.Figures{RequestsPerMinute: 3, TokensPerMinute: 100}}
	return auth.WithAdmission(context.Background(), a), a
}

func TestADeclaredKeyIsCounted(t *testing.T) {
	s := open(t, redistest.Single(t).URL)
	for i := range 4 {
		ctx, a := admission(auth.Principal{Account: "a", Mode: auth.Live})
		err := s.Admit(ctx)
		d, ok := a.Decision()
		t.Log(err, d, ok, i)
	}
}
