package redis

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
)

// keyFill describes API keys that fill stores. The keys have no pointers.
type keyFill struct {
	from int // number of the first key; the others follow
	n    int
	old  bool          // stored like keys of earlier versions: in the list TAG:keys, instead of the indices TAG:ki and TAG:kx
	ends time.Duration // how long ago the keys expired; 0 for keys that never expire
}

// fill stores API keys of an owner, in the format of create_key.lua. It returns their ids, newest first.
func fill(t *testing.T, s *Store, owner auth.Owner, f keyFill) (ids []string) {
	t.Helper()
	tag, first := ownerTag(owner), time.Now().Add(-time.Hour).UnixMilli()
	pipe := s.db.Pipeline()
	pipe.HSet(t.Context(), accountKey(tag), "tier", "free")
	for i := f.from; i < f.from+f.n; i++ {
		id, created, expires, end := fmt.Sprintf("key_%016d", i), first+int64(i), "", "+inf"
		if f.ends != 0 {
			expires = millis(time.Now().Add(time.Duration(i)*time.Millisecond - f.ends))
			end = expires
		}
		pipe.HSet(t.Context(), keyKey(tag, id), "id", id, "name", "key", "scopes", `["admin"]`, "prefix", "svc_live_ab", "expires", expires,
			"created", created, "secret", hashText(auth.HashOf(id)), "since", created, "tier", "free", "version", 1)
		if f.old {
			pipe.LPush(t.Context(), keyListKey(tag), id)
		} else {
			pipe.Do(t.Context(), "ZADD", keyIndexKey(tag), created, id)
			pipe.Do(t.Context(), "ZADD", keyEndsKey(tag), end, id)
		}
		ids = append(ids, id)
		if i%1000 == 999 || i == f.from+f.n-1 { // on a busy machine, one pipeline of all commands would exceed the timeout of a write
			_, err := pipe.Exec(t.Context())
			must(t, err)
		}
	}
	slices.Reverse(ids)
	return ids
}

// listIDs returns the ids of all API keys of an owner. It reads pages of 20 keys.
func listIDs(t *testing.T, s *Store, owner auth.Owner) (ids []string) {
	t.Helper()
	query := auth.KeyQuery{Limit: 20}
	for {
		page, err := s.Keys(t.Context(), owner, query)
		must(t, err)
		for _, key := range page.Keys {
			ids = append(ids, key.ID)
		}
		if query.Before = page.Next; page.Next.IsZero() {
			return ids
		}
	}
}

var commandStat = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+),usec=(\d+)`)

// commands returns the number of calls of each command that operation causes, with those within scripts, and the time that the
// server takes for scripts.
func commands(t *testing.T, server *redistest.Server, operation func()) (calls map[string]int, scripts time.Duration) {
	t.Helper()
	server.Do("CONFIG", "RESETSTAT")
	operation()
	calls = make(map[string]int)
	for _, stat := range commandStat.FindAllStringSubmatch(server.Do("INFO", "commandstats"), -1) {
		calls[stat[1]], _ = strconv.Atoi(stat[2])
		if strings.HasPrefix(stat[1], "eval") {
			micros, _ := strconv.Atoi(stat[3])
			scripts += time.Duration(micros) * time.Microsecond
		}
	}
	maps.DeleteFunc(calls, func(name string, _ int) bool { return strings.HasPrefix(name, "config") || name == "info" })
	return calls, scripts
}

// TestKeyScripts_FewAndManyKeys_SameCommands runs each operation on API keys for an account with few keys and for an account with
// many keys. Redis must execute the same commands.
func TestKeyScripts_FewAndManyKeys_SameCommands(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	commandsOfKeyScripts(t, server, s, keyFill{n: 1}) // loads the scripts
	for _, c := range []struct {
		name      string
		few, many keyFill
	}{
		{"active keys", keyFill{n: 10}, keyFill{n: 10_000}},
		{"keys that ended long ago", keyFill{n: 100, ends: 31 * 24 * time.Hour}, keyFill{n: 10_000, ends: 31 * 24 * time.Hour}},
		{"keys of an earlier version", keyFill{n: 1_000, old: true}, keyFill{n: 10_000, old: true}},
	} {
		few, many := commandsOfKeyScripts(t, server, s, c.few), commandsOfKeyScripts(t, server, s, c.many)
		for operation := range many {
			if !maps.Equal(few[operation], many[operation]) {
				t.Errorf("%s, %s: the commands for %d keys are %v; for %d keys, they are %v",
					c.name, operation, c.few.n, few[operation], c.many.n, many[operation])
			}
		}
	}
}

// commandsOfKeyScripts returns the number of calls of each command, for each operation on the API keys of a new account.
func commandsOfKeyScripts(t *testing.T, server *redistest.Server, s *Store, f keyFill) map[string]map[string]int {
	t.Helper()
	owner := auth.Owner{Account: newAccount(), Mode: auth.Live}
	fill(t, s, owner, f)
	p := newKey(t, s, owner)
	var next time.Time
	counts := make(map[string]map[string]int)
	for _, op := range []struct {
		name string
		run  func() error
	}{
		{"create", func() error { _, err := s.CreateKey(t.Context(), aKey(owner), ""); return err }},
		{"create, with a tier", func() error { _, err := s.CreateKey(t.Context(), aKey(owner), limit.Pro); return err }},
		{"create a test key", func() error {
			_, err := s.CreateKey(t.Context(), aKey(auth.Owner{Account: owner.Account, Mode: auth.Test}), "")
			return err
		}},
		{"list, first page", func() error {
			page, err := s.Keys(t.Context(), owner, auth.KeyQuery{Limit: 3})
			next = page.Next
			return err
		}},
		{"list, next page", func() error {
			_, err := s.Keys(t.Context(), owner, auth.KeyQuery{Before: next, Limit: 1})
			return err
		}},
		{"find by hash", func() error { _, err := s.KeyByHash(t.Context(), p.Secret); return err }},
		{"check", func() error { return s.KeyAlive(t.Context(), p) }},
		{"touch", func() error {
			return s.TouchKeys(t.Context(), []auth.KeyUse{{Owner: owner, KeyID: p.KeyID, At: time.Now()}})
		}},
		{"rotate", func() error {
			_, err := s.RotateKey(t.Context(), owner, p.KeyID, aKey(owner).Secrets[0].Hash, "svc_live_cd", auth.CLI)
			return err
		}},
		{"set the tier", func() error { return s.setTier(t.Context(), owner.Account, limit.Enterprise, auth.CLI) }},
		{"revoke", func() error { return s.RevokeKey(t.Context(), owner, p.KeyID, auth.CLI) }},
	} {
		counts[op.name], _ = commands(t, server, func() {
			if err := op.run(); err != nil {
				t.Errorf("%s: %v", op.name, err)
			}
		})
	}
	return counts
}

// TestKeys_20001Keys_FullPages reads pages of the indices, and of the list that earlier versions wrote. It logs the time that
// the server takes for the fastest of three pages. TestKeyScripts_FewAndManyKeys_SameCommands checks that the cost does not grow
// with the number of keys.
func TestKeys_20001Keys_FullPages(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	for _, old := range []bool{false, true} {
		owner := auth.Owner{Account: fmt.Sprint("old ", old), Mode: auth.Live}
		fill(t, s, owner, keyFill{n: 20_001, old: old})
		query, fastest := auth.KeyQuery{Limit: 100}, time.Hour
		for range 3 {
			_, took := commands(t, server, func() {
				page, err := s.Keys(t.Context(), owner, query)
				must(t, err)
				if query.Before = page.Next; len(page.Keys) != 100 || page.Next.IsZero() {
					t.Fatalf("a page has %d keys, and the next page begins before %v", len(page.Keys), page.Next)
				}
			})
			fastest = min(fastest, took)
		}
		t.Logf("list of earlier versions: %v; a page of 100 of 20,001 keys takes %v", old, fastest)
	}
}

// TestKeys_ListOfEarlierVersion_ListedAndCounted has keys that an earlier version created. One of them is revoked.
func TestKeys_ListOfEarlierVersion_ListedAndCounted(t *testing.T) {
	s, owner := newStore(t), auth.Owner{Account: newAccount(), Mode: auth.Live}
	tag := ownerTag(owner)
	ids := fill(t, s, owner, keyFill{n: 250, old: true})
	must(t, s.db.HSet(t.Context(), keyKey(tag, ids[7]), "revoked", "1").Err())
	must(t, s.RevokeKey(t.Context(), owner, ids[200], auth.CLI)) // before adopt_keys has moved it

	a := &auth.Admission{Principal: auth.Principal{Account: owner.Account, Mode: owner.Mode}, Limits: smallFigures}
	a.Limits.Keys = 240
	_, err := s.CreateKey(auth.WithAdmission(t.Context(), a), aKey(owner), "")
	refused := new(auth.QuotaError)
	if !errors.As(err, &refused) || refused.Used < 248 {
		t.Errorf("CreateKey with a quota of 240: error %v, want a QuotaError", err)
	}
	if got := listIDs(t, s, owner); !slices.Equal(got, ids) {
		t.Errorf("the keys are %q, want %q", got, ids)
	}
	made, err := s.CreateKey(t.Context(), aKey(owner), "")
	must(t, err)
	fill(t, s, owner, keyFill{from: 250, n: 1, old: true}) // a node of the earlier version creates one more key
	if got := listIDs(t, s, owner); len(got) != 252 || got[0] != made.ID {
		t.Errorf("after a new key, the list has %d keys, first %q", len(got), got[0])
	}
	_, err = s.CreateKey(auth.WithAdmission(t.Context(), a), aKey(owner), "")
	if errors.As(err, &refused); refused.Used != 250 { // 250 - 2 revoked + 2 new
		t.Errorf("%v, want 250 active keys", err)
	}
	if n := s.db.Exists(t.Context(), keyListKey(tag)).Val(); n != 0 {
		t.Error("the list of the earlier version still exists")
	}
}

func TestCreateKey_MoreThanMaxEnded_OldestRemoved(t *testing.T) {
	s, owner := newStore(t), auth.Owner{Account: newAccount(), Mode: auth.Live}
	tag := ownerTag(owner)
	ids := fill(t, s, owner, keyFill{n: auth.MaxEndedKeys + 15, ends: time.Hour})
	for _, want := range []int64{auth.MaxEndedKeys + 5, auth.MaxEndedKeys, auth.MaxEndedKeys} {
		_, err := s.CreateKey(t.Context(), aKey(owner), "")
		must(t, err)
		now := conversation.TimeOf(time.Now())
		if n := s.db.ZCount(t.Context(), keyEndsKey(tag), "-inf", strconv.FormatInt(int64(now), 10)).Val(); n != want {
			t.Errorf("%d ended keys are left, want %d", n, want)
		}
	}
	for i, want := range map[int]int64{auth.MaxEndedKeys - 1: 1, auth.MaxEndedKeys: 0, len(ids) - 1: 0} {
		if n := s.db.Exists(t.Context(), keyKey(tag, ids[i])).Val(); n != want {
			t.Errorf("records of the %d. newest key: %d, want %d", i+1, n, want)
		}
	}
	if n := s.db.ZCard(t.Context(), keyIndexKey(tag)).Val(); n != auth.MaxEndedKeys+3 {
		t.Errorf("the index has %d keys, want %d", n, auth.MaxEndedKeys+3)
	}
}
