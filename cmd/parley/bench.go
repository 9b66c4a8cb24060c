package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"parley/cmd/parley/bench"
)

// benchCommands is `parley bench`: the workloads of a load generator, a scripted model, and the bare pipe.
type benchCommands struct {
	Streams    benchStreams    `cmd:"" help:"Streams: each turn on a WebSocket of its own."`
	Requests   benchRequests   `cmd:"" help:"Messages with REST that wait for the whole reply."`
	Viewers    benchViewers    `cmd:"" help:"One reply at a time, with many viewers."`
	Idle       benchIdle       `cmd:"" help:"Idle WebSockets: the memory of each."`
	Admissions benchAdmissions `cmd:"" help:"Requests that only pay for the check of the key and the rate limit."`
	Growth     benchGrowth     `cmd:"" help:"A turn's cost while something doubles: sessions, messages, viewers or keys."`
	Model      benchModel      `cmd:"" help:"Run a fast model server that replies what the load generator asks for."`
	Pipe       benchPipe       `cmd:"" help:"Run the bare pipe: it relays a model's text, without keys, sessions and store."`
}

// Help is the text that kong prints below the summary of the command.
func (benchCommands) Help() string {
	return `The load needs a server with a tier that allows it, and a model that is not the limit. In three terminals:

  parley bench model --addr 127.0.0.1:8400
  OPENAI_BASE_URL=http://127.0.0.1:8400/v1 PARLEY_TIERS='` + bench.GenerousTiers + `' parley serve
  KEY=svc_live_… parley bench requests http://127.0.0.1:8420 -n 64

A line of progress a second is on standard error, the figures are on standard output. If a turn fails, the exit status is 1.
The CPU time, the memory and the written bytes are those of the process that listens on the port, if it runs on this machine.`
}

// benchLoad has the flags of all workloads.
type benchLoad struct {
	Address  string        `arg:"" optional:"" env:"PARLEY" default:"http://127.0.0.1:8420" help:"Address of the server or of the bare pipe."`
	Key      string        `env:"KEY" placeholder:"KEY" help:"Admin key of the server. Set it in the environment: other users can see command lines."`
	PID      int           `name:"pid" placeholder:"PID" help:"Process of the server. Default: the one that listens on the port of the address."`
	Redis    string        `placeholder:"HOST:PORT" help:"Redis of the server, to report what it pays."`
	Duration time.Duration `default:"10s" help:"Measured time."`
	Warmup   time.Duration `default:"2s" help:"Time under load before the measured time."`
	Sessions int           `default:"1000" help:"Sessions that exist before the load of streams and requests. A session serves ten turns."`
	Keep     bool          `help:"Do not delete the sessions at the end."`
	JSON     bool          `name:"json" help:"Print the figures as JSON."`
}

// options converts the flags.
func (c *benchLoad) options(o output) (bench.Options, error) {
	if c.Duration <= 0 || c.Warmup < 0 || c.Sessions < 1 {
		return bench.Options{}, errors.New("--duration and --sessions must be more than 0, and --warmup not less")
	}
	return bench.Options{
		Target:   bench.Target{URL: c.Address, Key: c.Key, PID: c.PID, Redis: c.Redis},
		Duration: c.Duration, Warmup: c.Warmup, Sessions: c.Sessions, Keep: c.Keep, Progress: o.errs,
	}, nil
}

// run runs a workload and prints its report.
func (c *benchLoad) run(o output, n int, workload func(bench.Options) (*bench.Report, error)) error {
	options, err := c.options(o)
	if err != nil {
		return err
	}
	if n < 1 {
		return fmt.Errorf("-n must be at least 1, not %d", n)
	}
	report, err := workload(options)
	if err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(o, report); err != nil {
			return err
		}
		return report.Err()
	}
	report.Write(o.out)
	return report.Err()
}

func printJSON(o output, value any) error {
	encoder := json.NewEncoder(o.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// benchStreams is `parley bench streams`.
type benchStreams struct {
	benchLoad
	N        int           `short:"n" default:"200" help:"Streams at the same time."`
	Tokens   int           `default:"200" help:"Tokens of each reply."`
	Interval time.Duration `default:"20ms" help:"Time between two tokens."`
}

// Run runs the workload.
func (c *benchStreams) Run(ctx context.Context, o output) error {
	return c.run(o, c.N, func(options bench.Options) (*bench.Report, error) {
		return bench.Streams(ctx, options, c.N, bench.Reply{Tokens: c.Tokens, Interval: c.Interval})
	})
}

// benchRequests is `parley bench requests`.
type benchRequests struct {
	benchLoad
	N         int           `short:"n" default:"64" help:"Callers at the same time."`
	Tokens    int           `default:"50" help:"Tokens of each reply."`
	Interval  time.Duration `default:"0s" help:"Time between two tokens."`
	History   int           `help:"Messages of each session before the load. Sessions then serve any number of turns."`
	Policy    string        `placeholder:"POLICY" help:"Retention policy of the sessions: fifo, priority or semantic."`
	MaxTokens int           `placeholder:"N" help:"Context window of the sessions in tokens."`
}

// Run runs the workload.
func (c *benchRequests) Run(ctx context.Context, o output) error {
	return c.run(o, c.N, func(options bench.Options) (*bench.Report, error) {
		window := bench.Window{History: c.History, Policy: c.Policy, MaxTokens: c.MaxTokens}
		return bench.Requests(ctx, options, c.N, bench.Reply{Tokens: c.Tokens, Interval: c.Interval}, window)
	})
}

// benchViewers is `parley bench viewers`.
type benchViewers struct {
	benchLoad
	N        int           `short:"n" default:"1000" help:"Viewers of the reply."`
	Tokens   int           `default:"200" help:"Tokens of each reply."`
	Interval time.Duration `default:"20ms" help:"Time between two tokens."`
}

// Run runs the workload.
func (c *benchViewers) Run(ctx context.Context, o output) error {
	return c.run(o, c.N, func(options bench.Options) (*bench.Report, error) {
		return bench.Viewers(ctx, options, c.N, bench.Reply{Tokens: c.Tokens, Interval: c.Interval})
	})
}

// benchIdle is `parley bench idle`.
type benchIdle struct {
	benchLoad
	N int `short:"n" default:"5000" help:"WebSockets."`
}

// Run runs the workload.
func (c *benchIdle) Run(ctx context.Context, o output) error {
	return c.run(o, c.N, func(options bench.Options) (*bench.Report, error) { return bench.Idle(ctx, options, c.N) })
}

// benchAdmissions is `parley bench admissions`.
type benchAdmissions struct {
	benchLoad
	N int `short:"n" default:"8" help:"Callers at the same time."`
}

// Run runs the workload.
func (c *benchAdmissions) Run(ctx context.Context, o output) error {
	return c.run(o, c.N, func(options bench.Options) (*bench.Report, error) { return bench.Admissions(ctx, options, c.N) })
}

// benchGrowth is `parley bench growth`.
type benchGrowth struct {
	Dimension string `arg:"" enum:"sessions,messages,viewers,keys" help:"What grows: sessions, messages, viewers or keys."`
	benchLoad
	First     int    `placeholder:"N" help:"Smallest size. Default: as the guide on performance."`
	Doublings int    `default:"5" help:"How often the size doubles."`
	Plot      string `placeholder:"FILE" help:"Write a plot of the cost by size, as SVG."`
}

// Run runs the workload at each size.
func (c *benchGrowth) Run(ctx context.Context, o output) error {
	options, err := c.options(o)
	if err != nil {
		return err
	}
	if c.First < 0 || c.Doublings < 0 {
		return errors.New("--first and --doublings must not be negative")
	}
	grown, err := bench.Grow(ctx, options, c.Dimension, c.First, c.Doublings)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(o, grown)
	} else {
		grown.Write(o.out)
	}
	if err == nil && c.Plot != "" {
		err = os.WriteFile(c.Plot, bench.Plot("Cost of "+grown.What, grown.Dimension, "µs of CPU", []bench.Series{{Name: "server", Points: grown.Points}}), 0o644)
	}
	return errors.Join(err, grown.Err())
}

// benchModel is `parley bench model`.
type benchModel struct {
	Addr     string        `default:"127.0.0.1:0" help:"Address to listen on; port 0 chooses a free port."`
	Tokens   int           `default:"50" help:"Tokens of a reply to a message that asks for nothing."`
	Interval time.Duration `default:"20ms" help:"Time between two tokens of such a reply."`
}

// Run serves until a signal.
func (c *benchModel) Run(ctx context.Context, o output) error {
	return serveBeside(ctx, o, c.Addr, "model", "/v1", bench.ScriptedModel{Default: bench.Reply{Tokens: c.Tokens, Interval: c.Interval}})
}

// benchPipe is `parley bench pipe`.
type benchPipe struct {
	Addr    string `default:"127.0.0.1:0" help:"Address to listen on; port 0 chooses a free port."`
	BaseURL string `name:"base-url" env:"OPENAI_BASE_URL" required:"" placeholder:"URL" help:"URL of an OpenAI-compatible API, including its version."`
}

// Run serves until a signal.
func (c *benchPipe) Run(ctx context.Context, o output) error {
	if originOf(c.BaseURL) == "" {
		return errors.New("--base-url (OPENAI_BASE_URL): invalid URL: it must begin with http:// or https:// and a host")
	}
	return serveBeside(ctx, o, c.Addr, "pipe", "", bench.NewPipe(c.BaseURL).Handler())
}

// serveBeside serves a handler until ctx ends. Before that, it prints a line with the name and the URL of the server.
func serveBeside(ctx context.Context, o output, address, name, path string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--addr: %w", explainListen(address, err))
	}
	if _, err := fmt.Fprintf(o.out, "%s %s%s\n", name, originOfListener(listener), path); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

func originOfListener(l net.Listener) string { return "http://" + l.Addr().String() }
