package redis

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/conversation"
	"parley/store/redis/redistest"
)

func TestParseURL_EachTopology_ReturnsOptions(t *testing.T) {
	type parsed struct {
		Addrs                            []string
		User, Password, Sentinel, Master string
		DB                               int
		TLS, Cluster                     bool
		Timeout                          time.Duration
	}
	for url, want := range map[string]parsed{
		"redis://host":                               {Addrs: []string{"host:6379"}},
		"redis://:p%40ss:w%2Frd@host:1/7":            {Addrs: []string{"host:1"}, Password: "p@ss:w/rd", DB: 7},
		"redis://:a@b@[::1]:2":                       {Addrs: []string{"[::1]:2"}, Password: "a@b"},
		"rediss://user:secret@[::1]/":                {Addrs: []string{"[::1]:6379"}, User: "user", Password: "secret", TLS: true},
		"redis+cluster://a:1,b":                      {Addrs: []string{"a:1", "b:6379"}, Cluster: true},
		"rediss+cluster://:s@a/":                     {Addrs: []string{"a:6379"}, Password: "s", Cluster: true, TLS: true},
		"redis+sentinel://:s@a:1,b/m/3":              {Addrs: []string{"a:1", "b:26379"}, Password: "s", Master: "m", DB: 3},
		"redis+sentinel://a/m?sentinelPassword=x%26": {Addrs: []string{"a:26379"}, Sentinel: "x&", Master: "m"},
		"redis://host?timeout=5s":                    {Addrs: []string{"host:6379"}, Timeout: 5 * time.Second},
	} {
		if want.Timeout == 0 {
			want.Timeout = defaultTimeout
		}
		o, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		got := parsed{o.Addrs, o.Username, o.Password, o.SentinelPassword, o.MasterName, o.DB, o.TLSConfig != nil, o.IsClusterMode, o.timeout}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", url, diff)
		}
	}
}

func TestOpen_MalformedURL_NoPasswordInError(t *testing.T) {
	for url, want := range map[string]string{
		"redis:secret":                      "has no ://",
		"rediz://:secret@h":                 "must begin with redis or rediss",
		"redis+replica://:secret@h":         "sentinel or cluster",
		"redis://:secret@h?timeout=1s":      "from 1.5s to 1m",
		"redis://:secret@h?timeout=61s":     "from 1.5s to 1m",
		"redis://:secret@h?timeout=secret":  "from 1.5s to 1m",
		"redis://:secret@":                  "names no host",
		"redis://:secret@h:secret":          "names no host",
		"redis://:secret@h:70000":           "names no host",
		"redis://:secret@h:1,i:2":           "several hosts",
		"redis://secret@h":                  "percent-encoded",
		"redis://:secret%zz@h":              "percent-encoded",
		"redis://:secret@h/secret":          "must be a number",
		"redis://:secret@h/-1":              "must be a number",
		"redis://:secret@h?secret=1":        "unknown parameter",
		"redis://:secret@h?a=%zz&secret":    "query",
		"redis+cluster://:secret@h/1":       "no databases",
		"redis+sentinel://:secret@h":        "names no master",
		"redis+sentinel://:secret@h/m/x":    "must be a number",
		"redis://h?sentinelPassword=secret": "unknown parameter",
	} {
		_, err := Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want %q", url, err, want)
		}
	}
}

func TestOpen_ServerRefusesOrIsDown_NoPasswordInError(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, "--requirepass", "other", "--masterauth", "x")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	for _, addr := range []string{server.Addr, listener.Addr().String()} {
		for _, url := range []string{"redis://:secret@" + addr, "redis+cluster://:secret@" + addr, "redis+sentinel://:secret@" + addr + "/m"} {
			_, err := Open(t.Context(), url)
			wantError(t, url, err, conversation.ErrUnavailable)
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("%s: the error contains the password: %v", url, err)
			}
		}
	}
}

func TestOpen_ServerBefore7_Refused(t *testing.T) {
	for reply, ok := range map[string]bool{
		"-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#'": false, // the reply of Redis 6.2
		":1": true,
	} {
		s, err := Open(t.Context(), "redis://"+serverReplying(t, reply))
		if err == nil {
			must(t, s.Close())
		}
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "needs Redis 7.0") {
			t.Errorf("reply %q: %v", reply, err)
		}
	}
}

// serverReplying starts a server that sends reply to EVAL, and an error to HELLO. It returns the server's address.
func serverReplying(t *testing.T, reply string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				switch strings.ToLower(lines.Text()) {
				case "hello":
					fmt.Fprint(conn, "-ERR unknown command\r\n")
				case "eval":
					fmt.Fprint(conn, reply+"\r\n")
				}
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// TestRun_EachFault_UnavailableUntilHealed injects a fault into a server or its connections, and removes the fault. Ping and
// Admit must fail during the fault and work again afterwards. The test does not measure how fast they fail, but a call that
// ignored the timeout would hang.
func TestRun_EachFault_UnavailableUntilHealed(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		harm, heal func(s *redistest.Server, p *redistest.Proxy)
	}{
		"killed":    {func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() }, func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() }},
		"suspended": {func(s *redistest.Server, _ *redistest.Proxy) { s.Stop() }, func(s *redistest.Server, _ *redistest.Proxy) { s.Cont() }},
		"out of memory": {
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "maxmemory", "0") },
		},
		"read-only": {
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("REPLICAOF", "NO", "ONE") },
		},
		"too few replicas": {
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") },
		},
		"unable to save": {
			func(s *redistest.Server, _ *redistest.Proxy) { s.BreakSaving() },
			func(s *redistest.Server, _ *redistest.Proxy) { s.Do("CONFIG", "SET", "save", "") },
		},
		"disconnected":        {func(_ *redistest.Server, p *redistest.Proxy) { p.Cut() }, func(_ *redistest.Server, p *redistest.Proxy) { p.Connect() }},
		"slow":                {func(_ *redistest.Server, p *redistest.Proxy) { p.Delay(5000) }, func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() }},
		"replies lost":        {func(_ *redistest.Server, p *redistest.Proxy) { p.LoseReplies(0) }, func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() }},
		"closing connections": {func(_ *redistest.Server, p *redistest.Proxy) { p.LoseReplies(20) }, func(_ *redistest.Server, p *redistest.Proxy) { p.Heal() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Single(t)
			proxy := redistest.NewProxy(t, server.Addr)
			s := openWithDefaultTimeout(t, proxy.URL)
			declared := auth.Principal{Account: "a", Mode: auth.Live}
			calls := map[string]func() error{
				"Ping":  func() error { return s.Ping(t.Context()) },
				"Admit": func() error { _, err := admit(t, s, declared); return err },
			}
			for what, call := range calls {
				wantWithin(t, what+", before the fault", call)
				fault.harm(server, proxy)
				wantError(t, what, call(), conversation.ErrUnavailable)
				fault.heal(server, proxy)
				healed := time.Now()
				for err := call(); err != nil; err = call() { // on a busy machine, one call may take longer than the default timeout
					if time.Since(healed) > time.Minute {
						t.Fatalf("%s, after the fault: %v", what, err)
					}
				}
			}
		})
	}
}

// TestRun_LostReply_OnlyIdempotentSentAgain loses the reply of admitScript, which has counted a request. A repeat would count the
// request again. By default, the go-redis client of a Cluster sends a script again.
func TestRun_LostReply_OnlyIdempotentSentAgain(t *testing.T) {
	t.Parallel()
	for _, url := range []string{redistest.Single(t).URL, redistest.Cluster(t).URL} {
		s, w := open(t, url), new(wire)
		nodes, clustered := s.db.(*redis.ClusterClient)
		if clustered {
			must(t, nodes.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
				node.AddHook(w)
				return nil
			}))
		} else {
			s.db.AddHook(w)
		}
		declared := auth.Principal{Account: "a", Mode: auth.Live}
		w.replyLost.Store(admitScript)
		_, err := admit(t, s, declared)
		wantError(t, "Admit", err, conversation.ErrUnavailable)
		if d, err := admit(t, s, declared); err != nil || d.Remaining != 298 {
			t.Errorf("Cluster=%v: the next Admit: %+v, %v; want 298 remaining", clustered, d, err)
		}
		w.replyLost.Store(listKeysScript)
		if _, err := s.Keys(t.Context(), declared.Owner(), auth.KeyQuery{Limit: 1}); err != nil { // listKeysScript is idempotent, so it is sent again
			t.Errorf("Cluster=%v: Keys: %v", clustered, err)
		}
	}
}

// TestRun_SuspendedServer_WaitsForTimeoutOfURL suspends a server. A call with the default timeout must fail meanwhile. A call
// with a longer timeout must succeed when the server goes on.
func TestRun_SuspendedServer_WaitsForTimeoutOfURL(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	usual, patient := openWithDefaultTimeout(t, server.URL), open(t, server.URL)
	server.Stop()
	done := make(chan error, 1)
	go func() { done <- patient.Ping(t.Context()) }()
	wantError(t, "Ping with the default timeout", usual.Ping(t.Context()), conversation.ErrUnavailable)
	server.Cont()
	must(t, <-done)
}

func TestRun_ServerForgotScripts_TextSentAgain(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	owner := auth.Owner{Account: "a", Mode: auth.Live}
	p := newKey(t, s, owner)
	uses := []auth.KeyUse{
		{Owner: owner, KeyID: p.KeyID, At: time.UnixMilli(1_800_000_000_000)}, {Owner: owner, KeyID: "key_0000000000000000", At: time.Now()},
	}
	server.Do("SCRIPT", "FLUSH")
	must(t, s.TouchKeys(t.Context(), uses))                          // runs touchKeyScript in a pipeline
	page, err := s.Keys(t.Context(), owner, auth.KeyQuery{Limit: 2}) // runs listKeysScript alone
	must(t, err)
	if len(page.Keys) != 1 || !page.Keys[0].LastUsedAt.Equal(uses[0].At) {
		t.Errorf("the keys are %+v, want one with the time of use %v", page.Keys, uses[0].At)
	}
}

// TestRun_OutOfMemory_ScriptNotStarted checks the effect of the shebang (see compile). Without the shebang, Redis would start the
// script, and the script could fail half-way.
func TestRun_OutOfMemory_ScriptNotStarted(t *testing.T) {
	server := redistest.Single(t)
	s := open(t, server.URL)
	server.Do("SET", "before", "1")
	half := newTestScript("half", "redis.call('DEL', KEYS[1])\nredis.call('SET', KEYS[2], '1')\nreturn 1\n", 0)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	_, err := s.run(t.Context(), half, "", []string{"before", "after"})
	wantError(t, "the script", err, conversation.ErrUnavailable)
	if found := server.Do("EXISTS", "before", "after"); found != ":1" {
		t.Errorf("EXISTS returned %s, want :1: the script has run, at least in part", found)
	}
}
