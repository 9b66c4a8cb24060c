// Package redis is the store for any number of nodes: accounts, keys, limits, sessions and live replies on Redis 7.0 and
// newer, or Valkey, alone, under Sentinel, or as a Cluster (design section 7).
//
// Three ideas carry it. Everything of one account and mode shares one hash tag, so an operation is one script in one
// slot, and what another account has cannot even be named (schema.go has all names). A script answers by value, what
// it refuses as well; an error of Redis is always trouble with the store (client.go). And every script goes through
// [Store.run], which carries the admission of the request along (script.go, lua/admission.lua).
//
// Of each process that joins, the others know by a heartbeat whether it lives (nodes.go), and end its turns if it does not
// (orphans.go). What happens in a session, the nodes that watch it are poked about (inbox.go, watch.go); live text goes to
// Redis by offset, without a script (journal.go).
//
// A store is named by a URL; what may stand in one, says [Open].
package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
)

// Store is a store on Redis. Its methods may be called from any goroutine. Where one can be called again with another
// result, or ends in conversation.ErrUnavailable, it may have taken effect: its reply can have been lost.
type Store struct {
	// static
	db        redis.UniversalClient
	clustered bool   // commands of one pipeline may go to several servers
	node      string // this process among the nodes, another each time that a store is opened

	replicas   replicas
	membership membership
	viewers    viewers
	journal    journal
	turns      liveTurns
	waiters    waiters
}

// Open connects to the Redis that url names, and sees that it is new enough. Errors hold nothing of the URL, which may
// hold a password.
//
//	redis://[[user]:password@]host[:port][/db]                         one server; rediss: with TLS, here and below
//	redis+sentinel://[[user]:password@]host[:port],…/master[/db]       the master of that name, found by Sentinels;
//	                                                                   their own password: ?sentinelPassword=…
//	redis+cluster://[[user]:password@]host[:port],…                    a Cluster, found by some of its nodes
//
// User and password are percent-encoded. TLS trusts the system's roots.
//
// ?waitReplicas=N (0 to 100; not for a Cluster) has what is durable before its answer (design section 7) wait until N replicas
// have it too, for 1 s at most, so that no fail-over to one of them loses what was answered. Where fewer have it,
// the error is conversation.ErrUnavailable, and the effect may have happened; from then on, until they are back, nothing that would have to wait is
// begun. Live text, request counts, queues and heartbeats wait for nobody.
func Open(ctx context.Context, url string) (*Store, error) {
	options, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	quiet()
	s := &Store{db: redis.NewUniversalClient(options.UniversalOptions), clustered: options.IsClusterMode, node: conversation.RandomText(16)}
	s.replicas.wanted = options.waitReplicas
	s.membership.every, s.membership.deadAfter = heartbeatEvery, deadAfter
	if err := s.checkVersion(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close leaves the nodes, if Join had made this process one, and closes the connections. What is called later fails.
func (s *Store) Close() error {
	s.leave()
	if err := s.db.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return errors.New("redis: closing the connections failed")
	}
	return nil
}

// Ping reports whether the store can be written to: nil, or an error that wraps conversation.ErrUnavailable. A server
// that only reads, is out of memory, or cannot save, is not ready; nor is a Cluster with one such master.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if _, err := s.run(ctx, pingScript, "", []string{readyKey}); err != nil {
		return err
	}
	nodes, clustered := s.db.(*redis.ClusterClient)
	if !clustered {
		return nil
	}
	return fault(nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.Eval(ctx, mayWrite, nil).Err()
	}))
}

// mayWrite is a script that writes nothing, but is refused where it could not.
const mayWrite = "#!lua\nreturn 1"

// Evicts returns the maxmemory-policy of a server that removes keys of its own accord when its memory is full, and so would lose
// what was answered; "" if there is none, or it cannot be asked. That it fills up, an operator sees; that it evicts, nobody.
func (s *Store) Evicts(ctx context.Context) (policy string) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var mu sync.Mutex
	ask := func(ctx context.Context, server redis.Cmdable) error {
		info, err := server.Info(ctx, "memory").Result()
		_, rest, _ := strings.Cut(info, "\r\nmaxmemory_policy:")
		said, _, _ := strings.Cut(rest, "\r")
		if said != "" && said != "noeviction" && !strings.Contains(info, "\r\nmaxmemory:0\r\n") {
			mu.Lock()
			defer mu.Unlock()
			policy = said
		}
		return err
	}
	if nodes, clustered := s.db.(*redis.ClusterClient); clustered {
		_ = nodes.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return ask(ctx, node) })
	} else {
		_ = ask(ctx, s.db)
	}
	mu.Lock()
	defer mu.Unlock()
	return policy
}

// oldest is the first version of Redis that has all that the scripts use: a shebang, by which a script is refused whole.
const oldest = "7.0"

// checkVersion returns an error if the server is older than that.
func (s *Store) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	info, err := s.db.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("redis: asking for the server's version: %w", fault(err))
	}
	_, rest, _ := strings.Cut(info, "redis_version:") // Valkey says the version of Redis that it stands for
	version, _, _ := strings.Cut(rest, "\r")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return fmt.Errorf("redis: the server is version %.20q; Parley needs %s or newer", version, oldest)
	}
	return nil
}

// unavailable wraps what went wrong with the store.
func unavailable(err error) error { return fmt.Errorf("%w: %w", conversation.ErrUnavailable, err) }
