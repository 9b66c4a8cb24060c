package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/conversation"
)

// Store is a store on Redis. Its methods may be called from any goroutine. A method that returns conversation.ErrUnavailable may
// have taken effect, because only its reply may be lost.
type Store struct {
	// static
	db        redis.UniversalClient
	clustered bool          // commands of one pipeline may go to several servers
	node      string        // the node id of this process; Open chooses a new one
	timeout   time.Duration // longest duration of a call

	topology   topology
	texts      sentTexts
	replicas   replicas
	membership membership
	followers  followers
	journal    journal
	turns      liveTurns
	waiters    waiters
	sockets    sockets
}

// Open connects to the Redis server, or servers, that url names, and checks the version of Redis. Errors contain no part of the
// URL except the path of caFile, because the URL may contain a password.
//
//	redis://[[user]:password@]host[:port][/db]                         one server; rediss: with TLS, here and below
//	redis+sentinel://[[user]:password@]host[:port],…/master[/db]       a master, named as the Sentinels at the hosts name it;
//	                                                                   password of the Sentinels: ?sentinelPassword=…
//	redis+cluster://[[user]:password@]host[:port],…                    a Cluster; the hosts are some of its servers
//
// User and password are percent-encoded. The user needs the rights that web/guides/security.md lists. TLS trusts the system's
// root certificates or, with ?caFile=PATH, only the certificates in a PEM file.
//
// With ?timeout=D (1.5s to 1m), a call that Redis does not answer fails after D. The default is 1.8 s, so that a request gets its
// 503 within 2 s if Redis cannot be reached.
//
// With ?waitReplicas=N (0 to 100), every durable operation (see Durability in doc.go) waits up to 1 s until N replicas have its
// writes. So a fail-over to one of these replicas loses no acknowledged write. If fewer replicas have the writes in time, the
// error is conversation.ErrUnavailable, although the operation has taken effect. From then on, durable operations on the same
// master do not start until N replicas have caught up. Live text, heartbeats, summaries and reads never wait.
func Open(ctx context.Context, url string) (*Store, error) {
	options, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	disableLogging()
	s := &Store{db: options.client(), clustered: options.IsClusterMode, node: conversation.RandomText(16)}
	s.replicas.wanted, s.timeout = options.waitReplicas, options.timeout
	s.membership.interval, s.membership.deadAfter = heartbeatInterval, deadAfter
	s.sockets.lease, s.sockets.renewal = auth.SocketLease, auth.SocketRenewal
	if err := s.checkVersion(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.topology.start(s.db, s.doubt)
	return s, nil
}

// Timeout implements conversation.Nodes.
func (s *Store) Timeout() time.Duration { return s.timeout }

// Close ends the membership of this process among the nodes, if it has joined, and closes the connections. Later calls fail.
func (s *Store) Close() error {
	s.leave()
	s.topology.end()
	if err := s.db.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return errors.New("redis: cannot close the connections")
	}
	return nil
}

// Evicts looks for a server that evicts keys when its memory is full, and so would lose sessions and API keys. It returns the
// maxmemory-policy of such a server. It returns "" if no server evicts keys, or none can be reached. A caller should check at
// startup, because eviction causes no errors later.
func (s *Store) Evicts(ctx context.Context) (policy string) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var mu sync.Mutex
	ask := func(ctx context.Context, server redis.Cmdable) error {
		info, err := server.Info(ctx, "memory").Result()
		_, rest, _ := strings.Cut(info, "\r\nmaxmemory_policy:")
		configured, _, _ := strings.Cut(rest, "\r")
		if configured != "" && configured != "noeviction" && !strings.Contains(info, "\r\nmaxmemory:0\r\n") {
			mu.Lock()
			defer mu.Unlock()
			policy = configured
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

// checkVersion returns an error if the server cannot run Parley's scripts: Redis before 7.0 does not know the shebang (see
// compile). The user of the URL may lack the right to read the version by INFO.
func (s *Store) checkVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.db.Eval(ctx, "#!lua flags=no-writes\nreturn 1", nil).Err()
	if redis.HasErrorPrefix(err, "Error compiling script") {
		return errors.New("redis: the server is too old; Parley needs Redis 7.0 or newer, or Valkey")
	}
	if err != nil {
		return fmt.Errorf("redis: cannot open the store: %w", fault(err))
	}
	return nil
}

// unavailable returns an error that wraps conversation.ErrUnavailable and err.
func unavailable(err error) error { return conversation.Unavailable(err) }
