// Package store opens the store that a URL names. A backend is a struct of the small interfaces that its consumers
// declare.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"parley/auth"
	"parley/conversation"
	"parley/store/embedded"
	"parley/store/redis"
)

// ErrInUse says that another process has the store to itself: a running server, as a rule.
var ErrInUse = embedded.ErrInUse

// Backend is an open store.
type Backend struct {
	Name         string // its URL, without what may be secret in it
	Conversation conversation.Store
	Nodes        conversation.Nodes // nil where one process has the store to itself
	Keys         auth.Store
	Tickets      auth.TicketStore

	ping  func(ctx context.Context) error
	close func() error
}

// Open opens the store that url names: file:PATH is the embedded one, redis:// and its like (see redis.Open) one that any number of
// nodes share (design section 7). log is told of faults that no caller is there to be told of; it may be nil.
func Open(ctx context.Context, url string, log *slog.Logger) (*Backend, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	transport, _, _ := strings.Cut(scheme, "+")
	switch transport {
	case "file":
		return openFile(rest, log)
	case "redis", "rediss":
		return openRedis(ctx, url, log)
	default:
		// The rest is not repeated: it may hold a password.
		return nil, fmt.Errorf("a store is named by file:PATH or redis://HOST:PORT; %q is none that is known", scheme)
	}
}

// publicURL returns a URL of Redis without its user, password and query.
func publicURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

func openRedis(ctx context.Context, url string, log *slog.Logger) (*Backend, error) {
	s, err := redis.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	if policy := s.Evicts(ctx); policy != "" && log != nil {
		log.Warn("Redis is configured to evict keys when its memory is full: sessions and keys would be lost. Set maxmemory-policy to noeviction", "maxmemory-policy", policy)
	}
	return &Backend{Name: publicURL(url), Conversation: s, Nodes: s, Keys: s, Tickets: s, ping: s.Ping, close: s.Close}, nil
}

// Exists returns an error if url names an embedded store that is not there; of others it knows nothing.
func Exists(url string) error {
	scheme, rest, _ := strings.Cut(url, ":")
	if scheme != "file" {
		return nil
	}
	path, err := pathOf(rest)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no store at %s; a server makes one when it starts, and so does parley keys create", path)
	}
	return nil
}

// pathOf returns the path that the rest of a file: URL names.
func pathOf(path string) (string, error) {
	if rest, isURL := strings.CutPrefix(path, "//"); isURL {
		if path = rest; !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("the store file://%s names a host; use file:%s or file:///PATH", rest, rest)
		}
	}
	if path == "" {
		return "", errors.New("the store file: names no file; use file:PATH")
	}
	return path, nil
}

func openFile(rest string, log *slog.Logger) (*Backend, error) {
	path, err := pathOf(rest)
	if err != nil {
		return nil, err
	}
	s, err := embedded.Open(path, embedded.Options{Log: log})
	if err != nil {
		return nil, err
	}
	return &Backend{Name: "file:" + rest, Conversation: s, Keys: s, Tickets: auth.NewTicketMemory(), ping: s.Ping, close: s.Close}, nil
}

// Ping reports whether the store can be read and written: nil, or an error that wraps conversation.ErrUnavailable. It may
// be called from any goroutine.
func (b *Backend) Ping(ctx context.Context) error { return b.ping(ctx) }

// Close waits for what is being written and closes the store. What is called later fails.
func (b *Backend) Close() error { return b.close() }
