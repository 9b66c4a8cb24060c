package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation/service"
	"parley/conversation/tokens"
	"parley/server"
	"parley/store"
	"parley/stream"
	"parley/stream/openai"
	"parley/stream/simulated"
	"parley/web"
)

// serve is the command of that name (design section 8).
type serve struct {
	Addr           string   `env:"PARLEY_ADDR" default:"127.0.0.1:8420" help:"Address to listen on; port 0 takes a free one."`
	Store          string   `env:"PARLEY_STORE" default:"file:parley.db" help:"Where sessions are kept: file:PATH for one server, redis://HOST:PORT for any number of them (also rediss://, redis+sentinel://HOST:PORT,…/MASTER, redis+cluster://HOST:PORT,…)."`
	AdminKey       string   `env:"PARLEY_ADMIN_KEY" placeholder:"KEY" help:"Declares an admin key of the default account (svc_live_…, 32 characters or more) instead of having one made. Better set in the environment than here."`
	Tier           string   `env:"PARLEY_TIER" enum:"free,pro,enterprise" default:"pro" help:"Tier of the default account: free, pro or enterprise."`
	Tiers          string   `env:"PARLEY_TIERS" placeholder:"JSON" help:"Overrides figures of tiers: {\"pro\":{\"requestsPerMinute\":300,\"tokensPerMinute\":100000}}."`
	Model          string   `env:"PARLEY_MODEL" placeholder:"NAME" help:"Model to ask for. By default the first that the model server lists."`
	EmbeddingModel string   `env:"PARLEY_EMBEDDING_MODEL" placeholder:"NAME" help:"Embedding model of the same API, for sessions whose retention policy is semantic. By default these compare words."`
	BaseURL        string   `name:"base-url" env:"OPENAI_BASE_URL" placeholder:"URL" help:"OpenAI-compatible API, its version included. By default a local Ollama or llama.cpp if one answers, else a simulated model."`
	APIKey         string   `name:"api-key" env:"OPENAI_API_KEY" placeholder:"KEY" help:"Key of that API. Better set in the environment than here."`
	FirstByte      duration `name:"model-first-byte" env:"PARLEY_MODEL_FIRST_BYTE" default:"120s" help:"How long the model may take to send its first byte."`
	Stall          duration `name:"model-stall" env:"PARLEY_MODEL_STALL" default:"60s" help:"How long the model may be silent after that."`
	DrainTimeout   duration `env:"PARLEY_DRAIN_TIMEOUT" default:"30s" help:"How long live replies may go on when the server is told to stop."`
	Origins        []string `env:"PARLEY_ORIGINS" placeholder:"ORIGIN" help:"Origins of other sites' pages that may open sockets, such as https://chat.example.com."`
	MaxSockets     int      `env:"PARLEY_MAX_SOCKETS" default:"100000" help:"How many sockets may be open at once."`
	Log            string   `env:"PARLEY_LOG" enum:"text,json" default:"text" help:"Form of the log: text or json."`
	LogLevel       string   `env:"PARLEY_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error."`
}

// duration is a positive time.Duration.
type duration time.Duration

// UnmarshalText reads "90s" and the like.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%q is no duration such as 90s", text)
	case parsed <= 0:
		return fmt.Errorf("%q is too short: more than 0s, such as 90s", text)
	}
	*d = duration(parsed)
	return nil
}

// Run serves until ctx is done, which is the first signal, then drains. stop gives signals their usual effect back, so
// that a second one ends the process at once.
func (c *serve) Run(ctx context.Context, stop context.CancelFunc, o output) error {
	if err := c.check(); err != nil {
		return err
	}
	log := c.logger(o)
	tiers, err := limit.ParseTiers(c.Tiers)
	if err != nil {
		return fmt.Errorf("--tiers (PARLEY_TIERS): %w", err)
	}
	chosen, err := c.chooseModels(ctx)
	if err != nil {
		return err
	}
	model := chosen.model
	backend, err := store.Open(ctx, c.Store, log)
	if err != nil {
		return fmt.Errorf("--store (PARLEY_STORE): %w", err)
	}
	defer func() {
		if err := backend.Close(); err != nil {
			log.Error("the store could not be closed", "error", err)
		}
	}()
	counter := tokens.For(model.Name())
	go counter.Warm()
	metrics := server.NewMetrics()
	service := service.New(service.Options{
		Store: backend.Conversation, Nodes: backend.Nodes, Model: metrics.Model(model), Embedder: metrics.Embedder(chosen.embedder),
		Count: counter.Count, Log: log,
		Timeouts: stream.Timeouts{FirstByte: time.Duration(c.FirstByte), Stall: time.Duration(c.Stall)},
	})
	if err := service.Start(ctx); err != nil {
		return err
	}
	keys := auth.NewKeys(backend.Keys, auth.Options{AdminKey: c.AdminKey, Tier: limit.Tier(c.Tier)})
	defer func() {
		if err := keys.Close(context.Background()); err != nil {
			log.Warn("when keys were last used could not be written", "error", err)
		}
	}()
	tickets, err := auth.NewTickets(ctx, backend.Tickets)
	if err != nil {
		service.Drain(ctx)
		return fmt.Errorf("the key of tickets: %w", err)
	}
	_, pretended := model.(*simulated.Model)
	handler := server.New(server.Options{
		Conversation: service, Keys: keys, Tickets: tickets, Limits: auth.NewLimits(tiers), Page: web.Handler(web.Options{Simulated: pretended}), Ready: backend.Ping,
		Origins: c.Origins, MaxSockets: c.MaxSockets, Metrics: metrics, Log: log,
	})
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		service.Drain(ctx)
		return fmt.Errorf("--addr (PARLEY_ADDR): %w", err)
	}
	if err := c.greet(ctx, o, keys, backend.Name, pageAt(listener.Addr()), chosen.described); err != nil {
		service.Drain(ctx)
		return err
	}
	return c.serve(ctx, stop, listener, handler, service, log)
}

// lastWords is how long what has ended may take to be written to those who wait for it.
const lastWords = 2 * time.Second

// check finds mistakes in the configuration that would only show later. What may hold a secret is not repeated.
func (c *serve) check() error {
	if c.AdminKey != "" {
		if err := auth.CheckDeclared(c.AdminKey); err != nil {
			return fmt.Errorf("--admin-key (PARLEY_ADMIN_KEY): %w", err)
		}
	}
	if c.BaseURL != "" && originOf(c.BaseURL) == "" {
		return errors.New("--base-url (OPENAI_BASE_URL): it begins with http:// or https:// and a host, such as http://127.0.0.1:11434/v1")
	}
	if c.MaxSockets < 1 {
		return fmt.Errorf("--max-sockets (PARLEY_MAX_SOCKETS): at least 1, not %d", c.MaxSockets)
	}
	for _, origin := range c.Origins {
		if originOf(origin) != origin {
			return fmt.Errorf("--origins (PARLEY_ORIGINS): %q is no origin such as https://chat.example.com", origin)
		}
	}
	return nil
}

// originOf returns the scheme and the host of an address on the web, "" if it is none.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// serve answers requests until ctx is done, then drains.
func (c *serve) serve(ctx context.Context, stop context.CancelFunc, listener net.Listener, handler *server.Server, service *service.Service, log *slog.Logger) error {
	web := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		service.Drain(ctx)
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
		stop()
	}
	log.Info("draining: live replies may end; a second signal stops at once", "live", service.LiveReplies(), "timeout", time.Duration(c.DrainTimeout).String())
	handler.BeginDrain()
	limit, cancel := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout))
	defer cancel()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		service.Drain(limit)
	}()
	// Sockets stay a moment longer than the replies may, to be shown how those ended.
	sockets, cancelSockets := context.WithTimeout(context.Background(), time.Duration(c.DrainTimeout)+lastWords)
	defer cancelSockets()
	handler.DrainSockets(sockets)
	<-drained
	// What still waits for an answer has it by now, and only has to be written.
	last, cancelLast := context.WithTimeout(context.Background(), lastWords)
	defer cancelLast()
	if err := web.Shutdown(last); err != nil {
		_ = web.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	log.Info("stopped")
	return nil
}

// logger returns the log that is asked for, on standard error.
func (c *serve) logger(o output) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.LogLevel)) // kong has checked it
	options := &slog.HandlerOptions{Level: level}
	if c.Log == "json" {
		return slog.New(slog.NewJSONHandler(o.errs, options))
	}
	return slog.New(slog.NewTextHandler(o.errs, options))
}

// models are what answers, and a word on it for people.
type models struct {
	model     stream.Model
	embedder  stream.Embedder // nil for none
	described string
}

// chooseModels returns what is configured, a local server's model if one answers, else the simulated one.
func (c *serve) chooseModels(ctx context.Context) (chosen models, err error) {
	api, err := c.chooseAPI(ctx)
	if err != nil {
		return models{}, err
	}
	if api == nil {
		if c.EmbeddingModel != "" {
			return models{}, noServer("--embedding-model (PARLEY_EMBEDDING_MODEL)")
		}
		described := "the built-in simulated model: NO AI. Set OPENAI_BASE_URL, or start Ollama, for a real one"
		return models{model: simulated.New(simulated.Options{}), described: described}, nil
	}
	chosen = models{model: openai.New(*api), described: api.Name}
	if c.EmbeddingModel != "" {
		of := *api
		of.Name = c.EmbeddingModel
		chosen.embedder = openai.NewEmbedder(of)
		chosen.described += ", embeddings by " + of.Name
	}
	if c.BaseURL == "" && c.APIKey == "" {
		chosen.described += " at " + api.BaseURL
	}
	return chosen, nil
}

// chooseAPI returns which model of which server is to be asked; nil for the simulated one.
func (c *serve) chooseAPI(ctx context.Context) (*openai.Options, error) {
	if c.BaseURL == "" && c.APIKey == "" {
		base, first, ok := openai.Detect(ctx)
		switch {
		case !ok && c.Model != "":
			return nil, noServer("--model (PARLEY_MODEL)")
		case !ok:
			return nil, nil
		}
		return &openai.Options{BaseURL: base, Name: cmp.Or(c.Model, first)}, nil
	}
	api := openai.Options{BaseURL: c.BaseURL, Key: c.APIKey, Name: c.Model}
	if api.Name != "" {
		return &api, nil
	}
	if c.BaseURL == "" {
		return nil, errors.New("--api-key (OPENAI_API_KEY) is set: set --model (PARLEY_MODEL) too, for OpenAI has many models that do not chat")
	}
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	if api.Name, err = openai.FirstModel(limit, c.BaseURL, c.APIKey); err != nil {
		return nil, fmt.Errorf("the model server (--base-url, OPENAI_BASE_URL) was asked for its models: %w. Is it that server, and does it run? With --model (PARLEY_MODEL) set it is not asked", err)
	}
	return &api, nil
}

// noServer is the error of a model that is named where no server is.
func noServer(named string) error {
	return fmt.Errorf("%s is set, but no local model server answers: set --base-url (OPENAI_BASE_URL), or --api-key (OPENAI_API_KEY) for OpenAI", named)
}

// pageAt is where a browser on this machine finds the page.
func pageAt(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d/", tcp.Port)
	}
	return "http://" + address.String() + "/"
}

// greet says where the page is, which model answers, and which key is good; the first time it makes one.
func (c *serve) greet(ctx context.Context, o output, keys *auth.Keys, store, page, model string) error {
	secret, key := "", "the one declared by PARLEY_ADMIN_KEY"
	if c.AdminKey == "" {
		var err error
		if secret, err = keys.CreateFirst(ctx); err != nil {
			return fmt.Errorf("making the first admin key: %w", err)
		}
		if key = "below"; secret == "" {
			key = "the admin key shown at the first start; if it is lost, declare one with PARLEY_ADMIN_KEY"
		}
	}
	fmt.Fprintf(o.out, "Parley is ready.\n  page   %s\n  store  %s\n  model  %s\n  key    %s\n", page, store, model, key)
	if secret != "" {
		fmt.Fprintf(o.out, "\nYour admin key, shown this once:\n\n  %s\n\nOpen the page with it: %s#key=%s\n", secret, page, secret)
	}
	return nil
}
