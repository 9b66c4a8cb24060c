package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"os"
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
	// defaultTimeout limits a whole call if the URL sets no other timeout: waiting for a connection, dialling, writing, reading,
	// and redirections. So a request gets its 503 within 2 s if Redis cannot be reached.
	defaultTimeout = 1800 * time.Millisecond
	// Below minTimeout, waiting for replicas (replicaTimeout) would leave no time for the call. Above maxTimeout, clients would
	// have given up before they get their 503.
	minTimeout, maxTimeout = 1500 * time.Millisecond, time.Minute
)

// stepOf returns the longest duration of each step of a call: waiting for a connection, dialling, writing, and reading. It is
// shorter than the timeout of the call, so that the call returns the error of the step.
func stepOf(timeout time.Duration) time.Duration { return timeout * 5 / 6 }

// disableLogging stops the go-redis client from writing errors to standard error. The calls return the same errors.
var disableLogging = sync.OnceFunc(logging.Disable)

// newOptions returns the client's options that are the same for a single server, Sentinels and a Cluster.
func newOptions() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		// If only the response of a script was lost, a retry by the client would run the script twice.
		MaxRetries:            -1,
		DialerRetries:         1,
		ContextTimeoutEnabled: true, // without this option, the client ignores deadlines
		// A round trip occupies a connection for about 60 µs. Commands on more connections would only wait in Redis.
		PoolSize: max(32, 16*runtime.GOMAXPROCS(0)),
		// Redis 7.0 supports neither CLIENT SETINFO nor maintenance notifications.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// target holds the options from the URL of a store.
type target struct {
	*redis.UniversalOptions
	waitReplicas int
	timeout      time.Duration // longest duration of a call
}

// client returns a client for the servers of the URL.
func (t *target) client() redis.UniversalClient {
	if !t.IsClusterMode {
		return redis.NewUniversalClient(t.UniversalOptions)
	}
	options := t.Cluster()
	// With these policies, the client would send COMMAND before its first command, and wait up to 5 s for the response even if the
	// call has a shorter timeout.
	options.DisableRoutingPolicies = true
	return redis.NewClusterClient(options)
}

// setTimeout sets the longest duration of a call, and of each step of a call.
func (t *target) setTimeout(timeout time.Duration) {
	t.timeout = timeout
	t.DialTimeout, t.ReadTimeout, t.WriteTimeout, t.PoolTimeout = stepOf(timeout), stepOf(timeout), stepOf(timeout), stepOf(timeout)
}

// parseTimeout parses the URL parameter timeout; "" means defaultTimeout.
func parseTimeout(text string) (time.Duration, error) {
	if text == "" {
		return defaultTimeout, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout < minTimeout || timeout > maxTimeout {
		return 0, errors.New("redis: timeout in the store's URL must be from 1.5s to 1m, for example 5s")
	}
	return timeout, nil
}

// parseURL reads the URL of a store (see Open).
func parseURL(url string) (*target, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errors.New("redis: the store's URL has no ://")
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
		return nil, errors.New("redis: the store's URL must begin with redis or rediss")
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
	if err := o.setParameters(query); err != nil {
		return nil, err
	}
	if o.Addrs, err = parseHosts(authority, defaultPort); err != nil {
		return nil, err
	}
	return o, parsePath(o.UniversalOptions, topology, path)
}

// setParameters reads the parameters of the URL that every topology has. No other parameter may be left in query.
func (t *target) setParameters(query neturl.Values) (err error) {
	if t.waitReplicas, err = parseReplicas(query.Get("waitReplicas")); err != nil {
		return err
	}
	timeout, err := parseTimeout(query.Get("timeout"))
	if err != nil {
		return err
	}
	t.setTimeout(timeout)
	if query.Has("caFile") {
		if err := trustOnly(t.TLSConfig, query.Get("caFile")); err != nil {
			return err
		}
	}
	for name := range query {
		if name != "waitReplicas" && name != "timeout" && name != "caFile" {
			return errors.New("redis: the query of the store's URL has an unknown parameter; use timeout, waitReplicas, " +
				"with rediss caFile, with Sentinels sentinelPassword")
		}
	}
	return nil
}

// trustOnly makes config trust the certificates in a PEM file, and no others.
func trustOnly(config *tls.Config, file string) error {
	if config == nil {
		return errors.New("redis: caFile in the store's URL needs TLS: use rediss instead of redis")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("redis: caFile in the store's URL: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("redis: caFile in the store's URL: %s contains no certificate in PEM format", file)
	}
	return nil
}

func parseUser(o *redis.UniversalOptions, text string) error {
	user, password, ok := strings.Cut(text, ":")
	var errUser, errPassword error
	o.Username, errUser = neturl.PathUnescape(user)
	o.Password, errPassword = neturl.PathUnescape(password)
	if !ok || errUser != nil || errPassword != nil {
		return errors.New("redis: the user and password in the store's URL must be percent-encoded: user:password@ or :password@")
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
			return nil, errors.New("redis: the store's URL names no host, or a malformed one; use host:port")
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// parsePath reads the path of the URL. For a single server, the path is a database; for Sentinels, a master and a database. For a
// Cluster, the path must be empty.
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
		return errors.New("redis: the + in the scheme of the store's URL must be followed by sentinel or cluster")
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return errors.New("redis: the database in the store's URL must be a number")
	}
	o.DB = n
	return nil
}
