package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"syscall"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation/service"
	"parley/conversation/tokens"
	"parley/server"
	"parley/server/transport"
	"parley/store"
	"parley/stream"
	"parley/web"
)

// serve is `parley serve`.
type serve struct {
	Addr     string `env:"PARLEY_ADDR" default:"127.0.0.1:8420" help:"Address to listen on; port 0 chooses a free port."`
	Store    string `env:"PARLEY_STORE" default:"file:parley.db" help:"Store of the sessions: file:PATH for one server, redis://HOST:PORT for any number of servers (also rediss://, redis+sentinel://HOST:PORT,…/MASTER, redis+cluster://HOST:PORT,…)."`
	AdminKey string `env:"PARLEY_ADMIN_KEY" placeholder:"KEY" help:"Admin key of the default account (svc_live_…, at least 32 characters), instead of a generated one. Set it in the environment: other users can see command lines."`
	Tier     string `env:"PARLEY_TIER" enum:"free,pro,enterprise" default:"pro" help:"Tier of the default account: free, pro or enterprise."`
	Tiers    string `env:"PARLEY_TIERS" placeholder:"JSON" help:"Limits that override those of a tier, for example {\"pro\":{\"requestsPerMinute\":300,\"userRequestsPerMinute\":60}}. Fields: requestsPerMinute, tokensPerMinute, userRequestsPerMinute, userTokensPerMinute, framesPerMinute, requestsPerMonth, tokensPerMonth, enforceMonth, activeSessions, storedBytes, keys, sockets."`
	modelFlags
	FirstByte      duration `name:"model-first-byte" env:"PARLEY_MODEL_FIRST_BYTE" default:"120s" help:"Timeout for the first byte of a model's response."`
	Stall          duration `name:"model-stall" env:"PARLEY_MODEL_STALL" default:"60s" help:"Timeout for each further byte of the response."`
	MaxReplyBytes  int      `env:"PARLEY_MAX_REPLY_BYTES" default:"1048576" help:"Maximum size of a reply's text in bytes, from 4096 to 16777216. A reply may also have at most 256 bytes for each token of its room. A longer reply ends as completed, with the finish reason length."`
	DrainTimeout   duration `env:"PARLEY_DRAIN_TIMEOUT" default:"30s" help:"How long live replies may continue after SIGTERM or SIGINT; then they end as interrupted."`
	PublicURL      string   `name:"public-url" env:"PARLEY_PUBLIC_URL" placeholder:"URL" help:"Scheme and host under which clients reach the server, for example https://chat.example.com. Default: the Host header of each request."`
	TrustedProxies []string `env:"PARLEY_TRUSTED_PROXIES" placeholder:"ADDRESS" help:"Addresses or networks of the proxies in front of the server, separated by commas, for example 127.0.0.1,10.1.0.0/16. Their X-Forwarded-For is believed."`
	Origins        []string `env:"PARLEY_ORIGINS" placeholder:"ORIGIN" help:"Other origins whose pages may open WebSockets, separated by commas, for example https://chat.example.com."`
	MaxSockets     int      `env:"PARLEY_MAX_SOCKETS" default:"100000" help:"Maximum number of open WebSockets."`
	MaxConnections int      `env:"PARLEY_MAX_CONNECTIONS" placeholder:"N" help:"Maximum number of open connections, including WebSockets. Default: 10,000 more than PARLEY_MAX_SOCKETS."`
	MaxPerAddress  int      `name:"max-connections-per-address" env:"PARLEY_MAX_CONNECTIONS_PER_ADDRESS" default:"1000" help:"Maximum number of open connections of one client address (for IPv6: of one /64 network). Loopback addresses have no limit."`
	MaxInflight    int      `name:"max-inflight" env:"PARLEY_MAX_INFLIGHT" placeholder:"N" help:"Maximum number of sends in progress; one account gets at most three quarters of them. Default: half of the memory divided by 128 KiB, at most 10,000."`
	Log            string   `env:"PARLEY_LOG" enum:"text,json" default:"text" help:"Log format: text or json."`
	LogLevel       string   `env:"PARLEY_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"Minimum log level: debug, info, warn or error."`
}

// duration is a time.Duration greater than 0.
type duration time.Duration

// UnmarshalText parses a duration such as "90s".
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("invalid duration %q: use a unit, for example 90s", text)
	case parsed <= 0:
		return fmt.Errorf("invalid duration %q: it must be more than 0s, for example 90s", text)
	}
	*d = duration(parsed)
	return nil
}

// Run serves until the first signal ends ctx, then drains. stop restores the default effect of signals, so that a second signal
// ends the process at once.
func (c *serve) Run(ctx context.Context, stop context.CancelFunc, o output) error {
	if err := c.check(); err != nil {
		return err
	}
	log := c.logger(o)
	tiers, err := limit.ParseTiers(c.Tiers)
	if err != nil {
		return fmt.Errorf("--tiers (PARLEY_TIERS): %w", err)
	}
	proxies, err := transport.ParseProxies(c.TrustedProxies)
	if err != nil {
		return fmt.Errorf("--trusted-proxies (PARLEY_TRUSTED_PROXIES): %w", err)
	}
	metrics := server.NewMetrics()
	set, err := c.openModels(ctx, metrics, log)
	if err != nil {
		return err
	}
	defer set.Close()
	embedder := c.embedder(set)
	backend, err := store.Open(ctx, c.Store, log)
	if err != nil {
		return fmt.Errorf("--store (PARLEY_STORE): %w", err)
	}
	defer func() {
		if err := backend.Close(); err != nil {
			log.Error("could not close the store", "error", err)
		}
	}()
	// All stored counts come from one vocabulary, whatever model a session uses: the vocabulary of the configured default model.
	counter := tokens.For(set.Default().Config().Model)
	service := service.New(service.Options{
		Store: backend.Conversation, Nodes: backend.Nodes, Models: set, Embedder: metrics.Embedder(embedder),
		Count: counter.Count, Log: log,
		Timeouts:      stream.Timeouts{FirstByte: time.Duration(c.FirstByte), Stall: time.Duration(c.Stall)},
		MaxReplyBytes: c.MaxReplyBytes, MaxInFlight: c.maxInFlight(),
	})
	if err := service.Start(ctx); err != nil {
		return err
	}
	keys := auth.NewKeys(backend.Keys, auth.Options{AdminKey: c.AdminKey, Tier: limit.Tier(c.Tier)})
	defer func() {
		if err := keys.Close(context.Background()); err != nil {
			log.Warn("could not write when keys were last used", "error", err)
		}
	}()
	connections := transport.New(transport.Options{
		Max: c.maxConnections(log), MaxPerClient: c.MaxPerAddress, Proxies: proxies, Log: log,
	})
	handler := server.New(server.Options{
		Conversation: service, Keys: keys, Limits: auth.NewLimits(tiers), Page: web.Handler(web.Options{Simulated: set.Simulated}), Ready: backend.Ping,
		Models: set, RequireModel: c.RequireModel,
		Origins: c.Origins, PublicURL: c.PublicURL, MaxSockets: c.MaxSockets, Connections: connections, Metrics: metrics, Log: log,
	})
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		service.Drain(ctx)
		return fmt.Errorf("--addr (PARLEY_ADDR): %w", explainListen(c.Addr, err))
	}
	if err := c.announce(ctx, o, keys, backend.Name, pageAt(listener.Addr()), described(set, embedder)); err != nil {
		service.Drain(ctx)
		return err
	}
	return c.serve(ctx, stop, listener, handler, service, counter, log)
}

// explainListen replaces an error of net.Listen by an error that tells the user what to do. It returns other errors unchanged.
func explainListen(address string, err error) error {
	if _, _, splitErr := net.SplitHostPort(address); splitErr != nil {
		return fmt.Errorf("invalid address %q: use HOST:PORT, for example 127.0.0.1:8420", address)
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: address already in use: stop the other program or choose another port", address)
	}
	return err
}

// check finds mistakes in the configuration that would otherwise show only later. Its errors do not repeat a value that may
// contain a secret.
func (c *serve) check() error {
	if c.AdminKey != "" {
		if err := auth.CheckDeclared(c.AdminKey); err != nil {
			return fmt.Errorf("--admin-key (PARLEY_ADMIN_KEY): %w", err)
		}
	}
	if err := c.modelFlags.check(); err != nil {
		return err
	}
	if c.PublicURL != "" && originOf(c.PublicURL) != c.PublicURL {
		return fmt.Errorf("--public-url (PARLEY_PUBLIC_URL): invalid URL %q: use scheme and host alone, for example https://chat.example.com", c.PublicURL)
	}
	if err := checkReplyBytes(c.MaxReplyBytes); err != nil {
		return err
	}
	if c.MaxSockets < 1 {
		return fmt.Errorf("--max-sockets (PARLEY_MAX_SOCKETS): must be at least 1, not %d", c.MaxSockets)
	}
	if c.MaxConnections < 0 {
		return fmt.Errorf("--max-connections (PARLEY_MAX_CONNECTIONS): must be at least 1, not %d", c.MaxConnections)
	}
	if c.MaxPerAddress < 1 {
		return fmt.Errorf("--max-connections-per-address (PARLEY_MAX_CONNECTIONS_PER_ADDRESS): must be at least 1, not %d", c.MaxPerAddress)
	}
	if c.MaxInflight < 0 {
		return fmt.Errorf("--max-inflight (PARLEY_MAX_INFLIGHT): must be at least 1, not %d", c.MaxInflight)
	}
	for _, origin := range c.Origins {
		if originOf(origin) != origin {
			return fmt.Errorf("--origins (PARLEY_ORIGINS): invalid origin %q: use scheme and host alone, for example https://chat.example.com", origin)
		}
	}
	return nil
}

const (
	// restConnections is the number of connections for requests other than WebSockets, if PARLEY_MAX_CONNECTIONS is not set.
	restConnections = 10_000
	// reservedFiles is the number of open files that are kept for the store, and for connections that are being refused. An
	// eighth of the other files is kept for connections to the model server: each live reply has such a connection.
	reservedFiles = 256
)

// maxConnections returns the maximum number of open connections. Each connection is an open file, so the limit of the operating
// system applies too: without free files, the server could not even refuse a connection.
func (c *serve) maxConnections(log *slog.Logger) int {
	most := cmp.Or(c.MaxConnections, c.MaxSockets+restConnections)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return most
	}
	allowed := (max(files.Cur, reservedFiles) - reservedFiles) / 8 * 7
	if allowed >= uint64(most) {
		return most
	}
	most = max(1, int(allowed))
	log.Warn("the limit of open files (ulimit -n) allows fewer connections than configured", "openFiles", files.Cur, "connections", most)
	return most
}

// originOf returns scheme and host (with port) of an http or https URL, and "" for anything else.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// logger returns a logger with the configured format and level. It writes to standard error, and only one line a minute
// about each fault of the store.
func (c *serve) logger(o output) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // the enum of the flag admits only valid levels
	options := &slog.HandlerOptions{Level: level}
	if c.Log == "json" {
		return slog.New(newFaultLog(slog.NewJSONHandler(o.errs, options)))
	}
	return slog.New(newFaultLog(slog.NewTextHandler(o.errs, options)))
}

// pageAt returns the URL of the page for a browser on this machine.
func pageAt(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d/", tcp.Port)
	}
	return "http://" + address.String() + "/"
}

// announce prints the URL of the page, the store, the model, and the admin key or where to find it. If c.AdminKey is "" and the
// default account does not exist, it creates the account with the first admin key.
func (c *serve) announce(ctx context.Context, o output, keys *auth.Keys, store, page, model string) error {
	secret, key := "", "the one in PARLEY_ADMIN_KEY"
	if c.AdminKey == "" {
		var err error
		if secret, err = keys.CreateFirst(ctx); err != nil {
			return fmt.Errorf("creating the first admin key: %w", err)
		}
		if key = "below"; secret == "" {
			key = "the admin key shown at the first start; if you lost it, set PARLEY_ADMIN_KEY"
		}
	}
	fmt.Fprintf(o.out, "Parley is ready.\n  page   %s\n  store  %s\n  model  %s\n  key    %s\n", page, store, model, key)
	if secret != "" {
		fmt.Fprintf(o.out, "\nYour admin key, shown only once:\n\n  %s\n\nOpen the page with it: %s#key=%s\n", secret, page, secret)
	}
	return nil
}
