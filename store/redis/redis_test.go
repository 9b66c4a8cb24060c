package redis

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
	"parley/store/storetest"
)

// open returns a store on the server at url, which may have a query. Calls of the store wait for a minute, so that no test fails
// on a busy machine. The store is closed after the test.
func open(t *testing.T, url string) *Store {
	t.Helper()
	if strings.Contains(url, "?") {
		return openWithDefaultTimeout(t, strings.Replace(url, "?", redistest.Patient+"&", 1))
	}
	return openWithDefaultTimeout(t, url+redistest.Patient)
}

// openWithDefaultTimeout returns a store on the server at url, for tests of what happens after the timeout. The store is closed
// after the test.
func openWithDefaultTimeout(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// shared is the server that most tests use. Each test uses its own accounts. A test that stops or breaks a server starts a server
// of its own.
var shared = redistest.Shared()

func TestMain(m *testing.M) {
	// Parallel tests mostly wait: for the next second of the clock, for Redis and for timers. The default of one test per core would
	// leave the machine idle most of the time. The flag -parallel on the command line overrides this value.
	if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.Kill()
	err := goleak.Find(
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), // ends a second after Close
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),        // toxiproxy leaks it
	)
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newStore returns a store on the shared server.
func newStore(t *testing.T) *Store { return open(t, shared.Start(t)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newAccount returns an account name that no other test uses.
func newAccount() string { return "account " + conversation.RandomText(12) }

// newKey creates an API key of an owner. It returns the principal of a request with this key.
func newKey(t *testing.T, s *Store, owner auth.Owner) auth.Principal {
	t.Helper()
	key, err := s.CreateKey(t.Context(), aKey(owner), limit.Pro)
	must(t, err)
	return auth.Principal{Account: key.Account, Mode: key.Mode, KeyID: key.ID, Scopes: key.Scopes, Secret: key.Secrets[0].Hash}
}

// aKey returns an API key of an owner, with a random id and secret. It does not store the key.
func aKey(owner auth.Owner) auth.Key {
	return auth.Key{
		Owner: owner, ID: auth.KeyPrefix + conversation.RandomText(16), Name: "a key", Scopes: []auth.Scope{auth.Admin},
		Prefix: "svc_live_ab", Secrets: []auth.Secret{{Hash: auth.HashOf(conversation.RandomText(32))}},
	}
}

var smallFigures = limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 10_000}

// admit calls Admit for a request of p, and returns the decision. It checks that there is a decision exactly if the request was
// admitted, or a limit refused it.
func admit(t *testing.T, s *Store, p auth.Principal) (limit.Decision, error) {
	a := &auth.Admission{Principal: p, Limits: smallFigures}
	err := s.Admit(auth.WithAdmission(t.Context(), a))
	d, decided := a.Decision()
	if refused := new(auth.LimitError); (err == nil || errors.As(err, &refused)) != decided || a.Pending() == decided {
		t.Errorf("Admit: error %v, decision %+v, decided: %v", err, d, decided)
	}
	return d, err
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: error %v, want %v", what, got, want)
	}
}

func TestPing_WritableServer_NoError(t *testing.T) {
	must(t, newStore(t).Ping(context.Background()))
}

// TestStore runs the suite storetest as the Redis user that web/guides/security.md describes.
func TestStore(t *testing.T) {
	servers := []*redistest.Server{shared.Server(t)}
	url := userOfGuide(t, servers[0].URL, servers)
	onServer := func(t *testing.T) storetest.Backend { return backend(open(t, url)) }
	storetest.Run(t, onServer)
	storetest.RunLong(t, onServer)
	wantNothingDenied(t, servers, url)
}

func backend(s *Store) storetest.Backend {
	return storetest.Backend{Conversation: s, Keys: s}
}

// goFile returns the text of a file of this package.
func goFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	return string(text)
}
