package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line.
type commands struct {
	Serve   serve         `cmd:"" help:"Run the server."`
	Keys    keys          `cmd:"" help:"Manage API keys directly in the store."`
	Store   storeCommands `cmd:"" help:"Check the file of the embedded store."`
	Bench   benchCommands `cmd:"" help:"Generate load, and measure what a server pays for it."`
	Version version       `cmd:"" help:"Print the version."`
}

const description = `Parley is a streaming-first conversation server: a REST API and a WebSocket in front of any OpenAI-compatible model.`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs a command and returns the exit code.
func run(args []string, out, errs io.Writer) int {
	exit, code := false, 0
	parser, err := kong.New(&commands{},
		kong.Name("parley"), kong.Description(description), kong.UsageOnError(), kong.Writers(out, errs),
		kong.Exit(func(c int) { exit, code = true, c }),
	)
	if err != nil {
		panic(err) // the struct tags of commands are invalid
	}
	command, err := parser.Parse(args)
	if exit { // --help
		return code
	}
	if err != nil {
		fmt.Fprintf(errs, "parley: %s\nTry: parley --help\n", nameVariables(parser.Model.Node, err.Error()))
		return 2
	}
	ignored := signal.Ignored(syscall.SIGINT) // shell scripts start background jobs with SIGINT ignored
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(context.CancelFunc(func() {
		stop()
		if ignored {
			exitAtNext(syscall.SIGINT)
		}
	}), output{out, errs})
	if err := command.Run(); err != nil {
		fmt.Fprintf(errs, "parley: %v\n", err)
		return 1
	}
	return 0
}

// nameVariables adds the environment variable to each flag in an error message of kong, because the value may come from that
// variable.
func nameVariables(node *kong.Node, message string) string {
	for _, flag := range node.Flags {
		before, rest, found := strings.Cut(message, "--"+flag.Name)
		if !found || len(flag.Envs) == 0 || strings.Contains(message, flag.Envs[0]) || rest != "" && !strings.ContainsAny(rest[:1], " :,") {
			continue
		}
		message = before + "--" + flag.Name + " (" + flag.Envs[0] + ")" + rest
	}
	for _, child := range node.Children {
		message = nameVariables(child, message)
	}
	return message
}

// exitAtNext makes the next signal s end the process. It is for a signal that was ignored when the process started, because Go
// ignores such a signal again after stop.
func exitAtNext(s syscall.Signal) {
	next := make(chan os.Signal, 1)
	signal.Notify(next, s)
	go func() {
		<-next
		os.Exit(128 + int(s))
	}()
}

// output has the standard output (out) and the standard error (errs) of a command.
type output struct{ out, errs io.Writer }

// version is `parley version`.
type version struct{}

// release is the version that `make release` links into the binary; "" in any other binary.
var release string

// Run prints the version of the release. In other binaries, it prints the version that versionOf finds.
func (version) Run(o output) error {
	info, _ := debug.ReadBuildInfo()
	_, err := fmt.Fprintln(o.out, "parley", cmp.Or(release, versionOf(info)))
	return err
}

// devel is the version of a binary that contains no version and no revision.
const devel = "(devel)"

// versionOf returns the version of the main module, else the revision (with -dirty for a changed checkout), else (devel). info
// may be nil.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return devel
	}
	if v := info.Main.Version; v != "" && v != devel {
		return v
	}
	revision, dirty := devel, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == devel {
		return devel
	}
	return revision + dirty
}
