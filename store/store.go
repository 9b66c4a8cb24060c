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

// ErrInUse means that another process, usually a running server, has the embedded store open.
var ErrInUse = embedded.ErrInUse

// Backend is an open store. Packages conversation and auth, which use the store, declare the interfaces of its fields.
type Backend struct {
	Name         string // URL without user, password and query
	Conversation conversation.Store
	Nodes        conversation.Nodes // nil for the embedded store, which has one node
	Keys         auth.Store

	ping  func(ctx context.Context) error
	close func() error
}

// Open opens the store at url: file:PATH, or a URL for redis.Open. log receives a warning if Redis evicts keys, and the errors
// that the embedded store cannot return to a caller. If log is nil, the store discards this warning and these errors.
func Open(ctx context.Context, url string, log *slog.Logger) (*Backend, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	transport, _, _ := strings.Cut(scheme, "+")
	switch transport {
	case "file":
		return openFile(rest, log)
	case "redis", "rediss":
		return openRedis(ctx, url, log)
	default:
		// The error does not contain the rest of the URL, which may contain a password.
		return nil, fmt.Errorf("unsupported store scheme %q: use file:PATH or redis://HOST:PORT (or rediss, redis+sentinel, redis+cluster)", scheme)
	}
}

// publicURL removes the user, the password and the query from a Redis URL.
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
		log.Warn("Redis evicts keys when its memory is full, which would lose sessions and API keys: set maxmemory-policy to noeviction", "maxmemory-policy", policy)
	}
	return &Backend{Name: publicURL(url), Conversation: s, Nodes: s, Keys: s, ping: s.Ping, close: s.Close}, nil
}

// Exists returns an error if url is a file: URL and is malformed, or if its file does not exist. For other URLs it returns nil
// without a check.
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
		return fmt.Errorf("there is no store at %s; start a server or run parley keys create, which create it", path)
	}
	return nil
}

// pathOf returns the path of the store's file. path is the part of a file: URL after the colon.
func pathOf(path string) (string, error) {
	if rest, isURL := strings.CutPrefix(path, "//"); isURL {
		if path = rest; !strings.HasPrefix(path, "/") {
			return "", fmt.Errorf("the store file://%s names a host: use file:%s or file:///PATH", rest, rest)
		}
	}
	if path == "" {
		return "", errors.New("the store file: names no file: use file:PATH")
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
	return &Backend{Name: "file:" + rest, Conversation: s, Keys: s, ping: s.Ping, close: s.Close}, nil
}

// Ping returns an error that wraps conversation.ErrUnavailable if the store cannot be read, or is known to refuse writes. It may
// be called from any goroutine.
func (b *Backend) Ping(ctx context.Context) error { return b.ping(ctx) }

// Close waits for pending writes and closes the store. Later calls fail.
func (b *Backend) Close() error { return b.close() }
