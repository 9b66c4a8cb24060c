package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowedImports is a row of the table.
type allowedImports struct {
	name    string
	imports []string
}

// packages lists for each package which others of the repository it may import, lowest layer first: imports run downwards only.
// A new package needs a row; where to put it is a decision about the design.
var packages = []allowedImports{
	{"stream", nil},
	{"stream/openai", []string{"stream"}},
	{"stream/simulated", []string{"stream"}},
	{"stream/wire", []string{"stream"}},
	{"stream/client", []string{"stream/wire"}},
	{"auth/base62", nil},
	{"auth/limit", nil},
	{"auth", []string{"auth/base62", "auth/limit"}},
	{"conversation/window", nil},
	{"conversation/tokens", nil},
	{"conversation/usage", nil},
	{"conversation", []string{"stream", "conversation/window", "conversation/usage", "auth/base62"}},
	{"conversation/prompt", []string{"stream", "conversation", "conversation/window"}},
	{"conversation/background", []string{"stream", "conversation", "conversation/prompt", "conversation/window"}},
	{"conversation/follow", []string{"stream", "conversation"}},
	{"conversation/turn", []string{"stream", "conversation", "conversation/background", "conversation/follow", "conversation/prompt", "conversation/window"}},
	{"conversation/service", []string{"stream", "conversation", "conversation/background", "conversation/follow", "conversation/prompt", "conversation/turn", "conversation/usage", "conversation/window"}},
	{"store/record", []string{"stream", "conversation"}},
	{"store/embedded", append([]string{"store/record"}, backend...)},
	{"store/redis", append([]string{"store/record", "auth/base62"}, backend...)},
	{"store/redis/redistest", nil},
	{"store/storetest", backend},
	{"store", append([]string{"store/embedded", "store/redis"}, backend...)},
	{"conversation/conversationtest", []string{"stream", "conversation", "conversation/service", "conversation/turn", "store/embedded"}}, // for tests
	{"web", nil},
	{"web/browsertest", nil},
	{"web/npmtest", nil},
	{"server/docs", []string{"web"}},
	{"server/api", []string{"conversation", "stream", "auth", "auth/limit"}}, // what REST and sockets share; it shows a limit's figures
	{"server/socket", []string{"conversation", "conversation/turn", "stream", "stream/wire", "auth", "server/api"}},
	{"server", []string{"server/api", "server/socket", "server/docs", "conversation", "conversation/service", "conversation/turn", "conversation/usage", "stream", "stream/wire", "auth", "auth/limit", "web"}},
	{"cmd/parley", []string{everything}},
}

// backend are the packages whose interfaces the stores implement, and the arithmetic they share.
var backend = []string{"stream", "auth", "auth/limit", "conversation", "conversation/window", "conversation/usage"}

const everything = "*"

// onlyIn lists the only packages that may import a module of others; with the prefix "tests of", only their tests may.
var onlyIn = map[string][]string{
	"github.com/gin-gonic/gin":          {"server"},
	"github.com/redis/go-redis":         {"store/redis"},
	"github.com/sashabaranov/go-openai": {"stream/openai"},
	"github.com/yuin/gopher-lua":        {testsOf + "store/redis"},
	"github.com/coder/websocket":        {"server/socket", "stream/client", testsOf + "server", testsOf + "cmd/parley"},
}

const testsOf = "tests of "

// source is a Go file of the repository.
type source struct {
	path string // from the top of the repository, with slashes
	text string
}

func TestImports_Downwards(t *testing.T) {
	for _, complaint := range inspect(t, sources(t)) {
		t.Error(complaint)
	}
}

// TestImports_PlantedMistake plants what the rules forbid, one at a time, and beside it what they allow.
func TestImports_PlantedMistake(t *testing.T) {
	for name, test := range map[string]struct {
		path, text string
		want       string // a part of the only complaint; "" for none
	}{
		"an import upwards":             {"stream/a.go", `package stream; import "parley/conversation"`, `stream/a.go: stream may not import parley/conversation`},
		"an import sideways":            {"store/redis/a.go", `package redis; import "parley/store/embedded"`, `store/redis may not import parley/store/embedded`},
		"an import in a group":          {"web/a.go", "package web\nimport (\n\"fmt\"\n_ \"parley/stream\"\n)", `web may not import parley/stream`},
		"a package's own sub-package":   {"stream/a.go", `package stream; import "parley/stream/wire"`, `stream may not import parley/stream/wire`},
		"the storage suite":             {"store/a.go", `package store; import "parley/store/storetest"`, `only tests may import`},
		"the storage suite, on top":     {"cmd/parley/a.go", `package main; import "parley/store/storetest"`, `only tests may import`},
		"the server by a test below":    {"stream/a_test.go", `package stream_test; import "parley/server"`, `tests of stream may not import parley/server`},
		"gin outside":                   {"conversation/a.go", `package conversation; import "github.com/gin-gonic/gin/binding"`, `only server may import github.com/gin-gonic/gin`},
		"gin in a test outside":         {"web/a_test.go", `package web; import "github.com/gin-gonic/gin"`, `only server may import`},
		"go-redis outside":              {"store/a.go", `package store; import redis "github.com/redis/go-redis/v9"`, `only store/redis may import`},
		"go-openai outside":             {"stream/simulated/a.go", `package simulated; import "github.com/sashabaranov/go-openai"`, `only stream/openai may import`},
		"websocket on top":              {"cmd/parley/a.go", `package main; import "github.com/coder/websocket"`, `only server/socket or stream/client or tests of server or tests of cmd/parley may import`},
		"an unknown import of ours":     {"server/a.go", `package server; import "parley/queue"`, `server may not import parley/queue`},
		"an unknown package":            {"queue/a.go", "// Package queue is new.\npackage queue", `queue is not in the table of packages: add it to the table`},
		"no comment":                    {"auth/limit/a.go", "// Not right above.\n\npackage limit", `auth/limit has no package comment`},
		"a directive is no comment":     {"auth/limit/a.go", "//go:build linux\npackage limit", `auth/limit has no package comment`},
		"imports as in the table":       {"server/a.go", `package server; import ("parley/web"; "parley/stream/wire"; "github.com/gin-gonic/gin"; "fmt")`, ``},
		"everything, on top":            {"cmd/parley/a.go", `package main; import ("parley/store/redis"; "parley/stream/client")`, ``},
		"websocket in a test on top":    {"cmd/parley/a_test.go", `package main; import "github.com/coder/websocket"`, ``},
		"the storage suite in a test":   {"store/embedded/a_test.go", `package embedded_test; import ("parley/store/embedded"; "parley/store/storetest")`, ``},
		"a name that only begins alike": {"web/a.go", `package web; import "github.com/gin-gonic/ginx"`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			files := []source{{test.path, test.text}}
			if test.want == "" || !strings.Contains(test.want, "comment") {
				files = append(files, source{path.Dir(test.path) + "/doc.go", "// Package p is here for its comment.\npackage p"})
			}
			switch got := inspect(t, files); {
			case test.want == "" && len(got) > 0:
				t.Errorf("complaints about what is allowed: %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}

// sources reads all Go files of the repository.
func sources(t *testing.T) (files []source) {
	const top = "../.."
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		switch base := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && name != top && (strings.HasPrefix(base, ".") || base == "testdata" || base == "static"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(base, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(top, name)
		files = append(files, source{filepath.ToSlash(relative), string(text)})
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("read %d files of ours: %v", len(files), err)
	}
	return files
}

// inspect returns what is wrong with the imports and the package comments of files, sorted.
func inspect(t *testing.T, files []source) (complaints []string) {
	complain := func(format string, about ...any) {
		complaints = append(complaints, fmt.Sprintf(format, about...))
	}
	explained := make(map[string]bool) // packages; false without a comment
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file.path, file.text, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		name, test := path.Dir(file.path), strings.HasSuffix(file.path, "_test.go")
		if !test {
			explained[name] = explained[name] || hasText(parsed.Doc)
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if reason := forbidden(name, imported, test); reason != "" {
				complain("%s: %s", file.path, reason)
			}
		}
	}
	for name, comment := range explained {
		if !slices.ContainsFunc(packages, func(r allowedImports) bool { return r.name == name }) {
			complain("%s is not in the table of packages: add it to the table", name)
		}
		if !comment {
			complain("%s has no package comment", name)
		}
	}
	slices.Sort(complaints)
	return complaints
}

func hasText(doc *ast.CommentGroup) bool { return doc != nil && strings.TrimSpace(doc.Text()) != "" }

// forbidden says why the package name, or its tests, may not import a package; "" if it may.
func forbidden(name, imported string, test bool) string {
	who := name
	if test {
		who = testsOf + name
	}
	ours, isOurs := strings.CutPrefix(imported, "parley/")
	if !isOurs {
		for module, where := range onlyIn {
			if (imported == module || strings.HasPrefix(imported, module+"/")) && !slices.Contains(where, name) && !slices.Contains(where, who) {
				return "only " + strings.Join(where, " or ") + " may import " + module
			}
		}
		return ""
	}
	var may []string
	for _, r := range packages {
		if r.name == name {
			may = r.imports
		}
	}
	allowed := slices.Contains(may, ours) || slices.Contains(may, everything)
	switch {
	case ours == "store/storetest" && !test:
		return "only tests may import parley/store/storetest"
	case test && ours == name: // from its outside
		allowed = true
	case test && ours != "server" && !strings.HasPrefix(ours, "cmd/"):
		allowed = true // a test may set up what it needs, but nothing of the top layer
	}
	if !allowed {
		return who + " may not import " + imported
	}
	return ""
}
