package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	neturl "net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// callLimit is how long a call may take, with dialling, waiting for a connection and redirections: callers answer
	// 503 within 2 s (design section 10).
	callLimit = 1800 * time.Millisecond
	// stepLimit is how long each of these may take.
	stepLimit = 1500 * time.Millisecond
)

// quiet has the client say nothing on standard error: what goes wrong, its calls return.
var quiet = sync.OnceFunc(logging.Disable)

// newOptions are what all connections have in common.
func newOptions() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		// The client's own retries run a script twice when only its reply was lost.
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true, // else deadlines are ignored
		DialTimeout:           stepLimit,
		ReadTimeout:           stepLimit,
		WriteTimeout:          stepLimit,
		PoolTimeout:           stepLimit,
		// A connection is taken for one trip of some 60 µs; more of them than this only queue in Redis.
		PoolSize: max(32, 16*runtime.GOMAXPROCS(0)),
		// Both are unknown to 7.0.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// target is what the URL of a store says.
type target struct {
	*redis.UniversalOptions
	waitReplicas int
}

// parseURL reads the URL of a store (see Open).
func parseURL(url string) (*target, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errors.New("redis: the store's URL lacks ://")
	}
	transport, topology, _ := strings.Cut(scheme, "+")
	rest, rawQuery, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	o := &target{UniversalOptions: newOptions()}
	switch transport {
	case "redis":
	case "rediss":
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, errors.New("redis: the store's URL begins with neither redis nor rediss")
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		if err := parseUser(o.UniversalOptions, authority[:at]); err != nil {
			return nil, err
		}
		authority = authority[at+1:]
	}
	query, err := neturl.ParseQuery(rawQuery)
	if err != nil {
		return nil, errors.New("redis: the query of the store's URL is malformed")
	}
	defaultPort := "6379"
	if topology == "sentinel" {
		defaultPort = "26379"
		o.SentinelPassword = query.Get("sentinelPassword")
		query.Del("sentinelPassword")
	}
	if o.waitReplicas, err = parseReplicas(query.Get("waitReplicas"), topology == "cluster"); err != nil {
		return nil, err
	}
	query.Del("waitReplicas")
	if len(query) > 0 {
		return nil, errors.New("redis: the query of the store's URL has a parameter that is not known")
	}
	if o.Addrs, err = parseHosts(authority, defaultPort); err != nil {
		return nil, err
	}
	return o, parsePath(o.UniversalOptions, topology, path)
}

func parseUser(o *redis.UniversalOptions, text string) error {
	user, password, ok := strings.Cut(text, ":")
	var errUser, errPassword error
	o.Username, errUser = neturl.PathUnescape(user)
	o.Password, errPassword = neturl.PathUnescape(password)
	if !ok || errUser != nil || errPassword != nil {
		return errors.New("redis: the user and password of the store's URL must be percent-encoded, as user:password@ or :password@")
	}
	return nil
}

func parseHosts(authority, defaultPort string) ([]string, error) {
	var addresses []string
	for host := range strings.SplitSeq(authority, ",") {
		address := host
		if _, _, err := net.SplitHostPort(host); err != nil {
			address = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		name, port, err := net.SplitHostPort(address)
		if n, portErr := strconv.Atoi(port); err != nil || name == "" || portErr != nil || n < 1 || n > 65535 {
			return nil, errors.New("redis: the store's URL names no host, or one that is malformed; use host:port")
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// parsePath reads what the path says in each topology: a database, a master and a database, nothing.
func parsePath(o *redis.UniversalOptions, topology, path string) error {
	db := path
	switch topology {
	case "":
		if len(o.Addrs) > 1 {
			return errors.New("redis: the store's URL names several hosts; use redis+sentinel:// or redis+cluster://")
		}
	case "sentinel":
		if o.MasterName, db, _ = strings.Cut(path, "/"); o.MasterName == "" {
			return errors.New("redis: the store's URL names no master; use redis+sentinel://host:port,…/master")
		}
	case "cluster":
		o.IsClusterMode = true
		if path != "" {
			return errors.New("redis: a Cluster has no databases; the store's URL must end after the hosts")
		}
	default:
		return errors.New("redis: of the store's URL, what follows the + must be sentinel or cluster")
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return errors.New("redis: the database of the store's URL must be a number")
	}
	o.DB = n
	return nil
}

// refusals are the errors with which a server says that it cannot do it now.
var refusals = []string{
	"LOADING ", "READONLY ", "MASTERDOWN ", "CLUSTERDOWN ", "OOM ", "MISCONF ", "NOREPLICAS ", "TRYAGAIN ", "BUSY ",
	"MOVED ", "ASK ", "NOAUTH ", "WRONGPASS ", "NOPERM ", "ERR max number of clients",
}

// fault returns the error of a call: one that wraps conversation.ErrUnavailable where a later try may succeed, and
// otherwise one that says that we, or the data, are wrong. Neither holds an argument of the call.
func fault(err error) error {
	var network net.Error
	var redisError redis.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err // the caller's own
	case strings.HasPrefix(err.Error(), "redis: all sentinels"): // holds what a Sentinel said
		return unavailable(errors.New("redis: no Sentinel names the master"))
	case errors.As(err, &redisError):
		for _, refusal := range refusals {
			if strings.HasPrefix(err.Error(), refusal) {
				return unavailable(errors.New("redis: " + strings.TrimSpace(refusal)))
			}
		}
		return err
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrClosed):
		return unavailable(err)
	}
	// "cluster has no nodes", and its like.
	return unavailable(errors.New("redis: the server cannot be reached"))
}
