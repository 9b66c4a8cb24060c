package store

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"parley/store/redis/redistest"
)

func TestOpen_File_UsableUntilClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "parley.db")
	for _, url := range []string{"file:" + path, "file://" + path} {
		b, err := Open(t.Context(), url, nil)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if b.Conversation == nil || b.Keys == nil {
			t.Errorf("%s: the backend has no Conversation or no Keys", url)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("%s: Ping: %v", url, err)
		}
		if err := b.Close(); err != nil {
			t.Errorf("%s: Close: %v", url, err)
		}
		if b.Ping(t.Context()) == nil {
			t.Errorf("%s: Ping of a closed store: no error", url)
		}
	}
}

func TestOpen_Failure_ErrorWithoutSecret(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://user:secret@127.0.0.1:1":          "unavailable",
		"rediss://user:secret@127.0.0.1:1":         "unavailable",
		"redis+shards://user:secret@127.0.0.1:1":   "sentinel or cluster",
		"redis+sentinel://user:secret@127.0.0.1:1": "names no master",
		"postgres://u:secret@host":                 `unsupported store scheme "postgres"`,
		"":                                         "unsupported store scheme",
		"parley.db":                                "unsupported store scheme",
		"file:":                                    "names no file",
		"file://host/parley.db":                    "names a host",
		"file:" + t.TempDir():                      "opening the store",
	} {
		_, err := Open(t.Context(), url, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v, want %q in it", url, err, want)
		}
	}
}

func TestPublicURL_OmitsUserPasswordAndQuery(t *testing.T) {
	for url, want := range map[string]string{
		"redis://host:6379/1":                                       "redis://host:6379/1",
		"redis://user:s%40:cret@host":                               "redis://host",
		"rediss://:sec@ret@host:1?q=pw/@x":                          "rediss://host:1",
		"redis+sentinel://:pw@a:1,b:2/master/1?sentinelPassword=pw": "redis+sentinel://a:1,b:2/master/1",
	} {
		if got := publicURL(url); got != want {
			t.Errorf("the public URL of %s is %s, want %s", url, got, want)
		}
	}
}

func TestOpen_EvictingRedis_LogsWarning(t *testing.T) {
	t.Parallel()
	for policy, memory := range map[string]string{"allkeys-lru": "100mb", "volatile-ttl": "100mb", "noeviction": "100mb", "allkeys-lfu": "0"} {
		var log strings.Builder
		server := redistest.Single(t, "--maxmemory", memory, "--maxmemory-policy", policy)
		b, err := Open(t.Context(), server.URL+redistest.Patient, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		evicts := policy != "noeviction" && memory != "0"
		if warned := strings.Contains(log.String(), "maxmemory-policy="+policy); warned != evicts {
			t.Errorf("policy %s, maxmemory %s: the log is %q, want a warning: %t", policy, memory, log.String(), evicts)
		}
	}
}
