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

// allowedImports lists the packages of the repository that a package may import.
type allowedImports struct {
	name    string
	imports []string
}

// packages lists, for each package, the packages of the repository that it may import. The lowest layer comes first, and a
// package imports only packages of lower layers. A new package needs a row, and the position of the row is a design decision.
var packages = []allowedImports{
	{"stream", nil},
	{"stream/openai", []string{"stream"}},
	{"stream/simulated", []string{"stream"}},
	{"stream/wire", []string{"stream"}},
	{"stream/client", []string{"stream/wire"}},
	{"stream/models", []string{"stream", "stream/openai", "stream/simulated"}},
	{"auth/base62", nil},
	{"auth/limit", nil},
	{"auth", []string{"auth/base62", "auth/limit"}},
	{"conversation/window", nil},
	{"conversation/tokens", nil},
	{"conversation/usage", nil},
	{"conversation", []string{"stream", "conversation/window", "conversation/usage", "auth/base62"}},
	{"conversation/prompt", []string{"stream", "conversation", "conversation/window"}},
	{"conversation/background", []string{"stream", "stream/models", "conversation", "conversation/prompt", "conversation/window"}},
	{"conversation/follow", []string{"stream", "conversation"}},
	{"conversation/turn", []string{"stream", "stream/models", "conversation", "conversation/background", "conversation/follow", "conversation/prompt", "conversation/window"}},
	{"conversation/service", []string{"stream", "stream/models", "conversation", "conversation/background", "conversation/follow", "conversation/prompt", "conversation/turn", "conversation/usage", "conversation/window"}},
	{"store/record", []string{"stream", "conversation", "conversation/window"}},
	{"store/embedded", append([]string{"store/record"}, backend...)},
	{"store/redis", append([]string{"store/record", "auth/base62"}, backend...)},
	{"store/redis/redistest", nil},
	{"store/storetest", backend},
	{"store", append([]string{"store/embedded", "store/redis"}, backend...)},
	{"conversation/conversationtest", []string{"stream", "stream/models", "conversation", "conversation/service", "conversation/turn", "store/embedded"}}, // for tests
	{"web", nil},
	{"web/browsertest", nil},
	{"web/npmtest", nil},
	{"server/docs", []string{"web"}},
	{"server/transport", nil},
	{"server/transport/transporttest", nil},
	{"server/api", []string{"server/transport", "conversation", "stream", "stream/models", "auth", "auth/limit"}}, // shared by REST and sockets; its responses show the figures of a limit
	{"server/socket", []string{"server/transport", "conversation", "conversation/turn", "stream", "stream/wire", "auth", "server/api"}},
	{"server", []string{"server/api", "server/socket", "server/docs", "server/transport", "conversation", "conversation/service", "conversation/turn", "conversation/usage", "stream", "stream/openai", "stream/wire", "stream/models", "auth", "auth/limit", "web"}},
	{"cmd/internal/child", nil},
	{"cmd/internal/guide", nil},
	{"cmd/parley/bench", []string{"stream/wire"}}, // a client of any server, and two small servers
	{"cmd/parley", []string{everything}},
	{"cmd/bench", []string{"cmd/internal/child", "cmd/internal/guide", "cmd/parley/bench"}}, // it drives real processes, too
	{"cmd/chaos/history", nil},
	{"cmd/chaos", []string{"cmd/internal/child", "cmd/internal/guide", "cmd/chaos/history", "store/redis/redistest", "stream/client"}}, // it drives real processes
}

// backend lists packages that store, the two stores and storetest may import. These packages define the interfaces that a store
// implements, and the types that a store uses.
var backend = []string{"stream", "auth", "auth/limit", "conversation", "conversation/window", "conversation/usage"}

const everything = "*" // matches every package of the repository

// onlyIn lists, for each third-party module, the packages that may import it. The prefix testsOf means that only the tests of the
// package may import the module.
var onlyIn = map[string][]string{
	"github.com/gin-gonic/gin":                {"server"},
	"github.com/redis/go-redis":               {"store/redis"},
	"github.com/sashabaranov/go-openai":       {"stream/openai"},
	"github.com/yuin/gopher-lua":              {testsOf + "store/redis"},
	"github.com/coder/websocket":              {"server/socket", "stream/client", "cmd/parley/bench", testsOf + "server", testsOf + "cmd/parley"},
	"github.com/HdrHistogram/hdrhistogram-go": {"cmd/parley/bench"},
}

const testsOf = "tests of "

// source is a Go file of the repository.
type source struct {
	path string // relative to the root of the repository, with slashes
	text string
}

func TestImports_OnlyFromLowerLayers(t *testing.T) {
	for _, complaint := range inspect(t, sources(t)) {
		t.Error(complaint)
	}
}

// Each test case is one source file: first the files that inspect must report, then the files that it must accept.
func TestImportCheck_EachRule_ReportsViolationsOnly(t *testing.T) {
	for name, test := range map[string]struct {
		path, text string
		want       string // part of the only complaint; "" for no complaint
	}{
		"import of a higher layer":                     {"stream/a.go", `package stream; import "parley/conversation"`, `stream/a.go: stream may not import parley/conversation`},
		"import of the same layer":                     {"store/redis/a.go", `package redis; import "parley/store/embedded"`, `store/redis may not import parley/store/embedded`},
		"import in a group":                            {"web/a.go", "package web\nimport (\n\"fmt\"\n_ \"parley/stream\"\n)", `web may not import parley/stream`},
		"import of a sub-package":                      {"stream/a.go", `package stream; import "parley/stream/wire"`, `stream may not import parley/stream/wire`},
		"storetest outside tests":                      {"store/a.go", `package store; import "parley/store/storetest"`, `only tests may import`},
		"storetest in cmd/parley, outside tests":       {"cmd/parley/a.go", `package main; import "parley/store/storetest"`, `only tests may import`},
		"server in a test of a lower layer":            {"stream/a_test.go", `package stream_test; import "parley/server"`, `tests of stream may not import parley/server`},
		"gin outside server":                           {"conversation/a.go", `package conversation; import "github.com/gin-gonic/gin/binding"`, `only server may import github.com/gin-gonic/gin`},
		"gin in a test outside server":                 {"web/a_test.go", `package web; import "github.com/gin-gonic/gin"`, `only server may import`},
		"go-redis outside store/redis":                 {"store/a.go", `package store; import redis "github.com/redis/go-redis/v9"`, `only store/redis may import`},
		"go-openai outside stream/openai":              {"stream/simulated/a.go", `package simulated; import "github.com/sashabaranov/go-openai"`, `only stream/openai may import`},
		"websocket in cmd/parley, outside tests":       {"cmd/parley/a.go", `package main; import "github.com/coder/websocket"`, `only server/socket or stream/client or cmd/parley/bench or tests of server or tests of cmd/parley may import`},
		"import of an unknown package":                 {"server/a.go", `package server; import "parley/queue"`, `server may not import parley/queue`},
		"package without a row":                        {"queue/a.go", "// Package queue is new.\npackage queue", `queue is not in the table of packages: add it to the table`},
		"comment not attached to the package":          {"auth/limit/a.go", "// Not right above.\n\npackage limit", `auth/limit has no package comment`},
		"directive instead of a comment":               {"auth/limit/a.go", "//go:build linux\npackage limit", `auth/limit has no package comment`},
		"imports of the table are allowed":             {"server/a.go", `package server; import ("parley/web"; "parley/stream/wire"; "github.com/gin-gonic/gin"; "fmt")`, ``},
		"cmd/parley may import everything":             {"cmd/parley/a.go", `package main; import ("parley/store/redis"; "parley/stream/client")`, ``},
		"websocket in a test of cmd/parley is allowed": {"cmd/parley/a_test.go", `package main; import "github.com/coder/websocket"`, ``},
		"storetest in a test is allowed":               {"store/embedded/a_test.go", `package embedded_test; import ("parley/store/embedded"; "parley/store/storetest")`, ``},
		"module with a common prefix is allowed":       {"web/a.go", `package web; import "github.com/gin-gonic/ginx"`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			files := []source{{test.path, test.text}}
			if test.want == "" || !strings.Contains(test.want, "comment") {
				files = append(files, source{path.Dir(test.path) + "/doc.go", "// Package p is here for its comment.\npackage p"})
			}
			switch got := inspect(t, files); {
			case test.want == "" && len(got) > 0:
				t.Errorf("complaints about allowed imports: %q", got)
			case test.want != "" && (len(got) != 1 || !strings.Contains(got[0], test.want)):
				t.Errorf("got %q, want one with %q", got, test.want)
			}
		})
	}
}

// sources reads the Go files of the repository, without testdata, static and hidden folders.
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
		t.Fatalf("read %d Go files, want at least 20: %v", len(files), err)
	}
	return files
}

// inspect checks the imports and package comments of the files. It returns one sentence for each mistake, sorted.
func inspect(t *testing.T, files []source) (complaints []string) {
	complain := func(format string, about ...any) {
		complaints = append(complaints, fmt.Sprintf(format, about...))
	}
	explained := make(map[string]bool) // by package: whether it has a package comment
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

// forbidden returns the reason why the package name, or its tests, must not import the package imported. It returns "" if the
// import is allowed.
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
	case test && ours == name: // an external test package imports its package
		allowed = true
	case test && ours != "server" && !strings.HasPrefix(ours, "cmd/"):
		allowed = true // a test may import any package for its setup except the top layer
	}
	if !allowed {
		return who + " may not import " + imported
	}
	return ""
}
