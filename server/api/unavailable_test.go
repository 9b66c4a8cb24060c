package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestUnavailable_EachRow_HasCauseOfItsOwn(t *testing.T) {
	causes := Causes()
	slices.Sort(causes)
	if slices.Contains(causes, "") || len(slices.Compact(slices.Clone(causes))) != len(causes) {
		t.Errorf("the causes are %q, want no empty and no repeated cause", causes)
	}
	for _, row := range table {
		if row.status == 503 {
			t.Errorf("%v is a 503 without a cause: move it to the table unavailable", row.is)
		}
	}
}

// The test reads the code of the whole repository, because any package can return an error that becomes a 503. It fails
// for an error that wraps conversation.ErrUnavailable directly, because its cause would be store_error although no
// store has failed. It also fails for an error of package conversation that wraps ErrUnavailable without a row in the
// table, and for a status 503 outside the table.
func TestUnavailable_EachPlaceThatMakes503_HasCause(t *testing.T) {
	wraps, rows := wrapping(t), rowsOfTable(t)
	for _, name := range wraps {
		if !slices.Contains(rows, name) {
			t.Errorf("conversation.%s has no row in the table unavailable", name)
		}
	}
	if len(wraps) < 6 || len(rows) < len(wraps) {
		t.Errorf("the test found the errors %q and the rows %q, so it reads the code wrongly", wraps, rows)
	}
	files := eachFile(t, func(path string, positions *token.FileSet, file *ast.File) {
		// These files have the definitions of the errors and rows. cmd/chaos is a client.
		if path == "conversation/errors.go" || path == "server/api/unavailable.go" || strings.HasPrefix(path, "cmd/chaos/") {
			return
		}
		asked := make(map[ast.Node]bool) // the arguments of errors.Is
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isSelector(n.Fun, "errors", "Is") {
					asked[n.Args[1]] = true
				}
			case *ast.SelectorExpr:
				at := positions.Position(n.Pos())
				if isSelector(n, "conversation", "ErrUnavailable") && !asked[n] {
					t.Errorf("%s:%d makes an error of ErrUnavailable: use conversation.Unavailable or an error with its own cause", path, at.Line)
				}
				if isSelector(n, "http", "StatusServiceUnavailable") && !knowsStatus[path] {
					t.Errorf("%s:%d uses the status 503: return an error of the table unavailable", path, at.Line)
				}
			case *ast.BasicLit:
				if n.Value == "503" && !knowsStatus[path] {
					t.Errorf("%s:%d uses the status 503: return an error of the table unavailable", path, positions.Position(n.Pos()).Line)
				}
			}
			return true
		})
	})
	if files < 200 {
		t.Errorf("the test has read %d files, want the whole repository", files)
	}
}

// knowsStatus holds the files that may contain the status 503, because they only compare a status with it: the metrics,
// the recording of causes, and the Go client.
var knowsStatus = map[string]bool{
	"server/metrics.go": true, "server/respond.go": true, "server/socket/reader.go": true, "stream/client/event.go": true,
}

// root is the folder of the repository.
var root = filepath.Join("..", "..")

// eachFile calls do with each Go file of the repository that is no test and may make a 503. path is relative to the
// repository. It returns the number of all Go files that are no tests.
func eachFile(t *testing.T, do func(path string, positions *token.FileSet, file *ast.File)) (files int) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil || strings.Contains(name, "test/") { // packages of test helpers, for example conversationtest
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil || !mayMake503.Match(text) {
			return err
		}
		do(parse(t, name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// mayMake503 matches the text of a file that may make a 503.
var mayMake503 = regexp.MustCompile(`ErrUnavailable|StatusServiceUnavailable|\b503\b`)

// parse parses a Go file. name is relative to the repository.
func parse(t *testing.T, name string) (path string, positions *token.FileSet, file *ast.File) {
	t.Helper()
	positions = token.NewFileSet()
	file, err := parser.ParseFile(positions, filepath.Join(root, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(name), positions, file
}

// wrapping returns the names of the errors in package conversation that wrap ErrUnavailable.
func wrapping(t *testing.T) (names []string) {
	t.Helper()
	_, _, file := parse(t, "conversation/errors.go")
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if call, ok := spec.Values[0].(*ast.CallExpr); ok && len(call.Args) > 1 {
			if wrapped, ok := call.Args[1].(*ast.Ident); ok && wrapped.Name == "ErrUnavailable" {
				names = append(names, spec.Names[0].Name)
			}
		}
		return true
	})
	return names
}

// rowsOfTable returns the names of the errors of package conversation in the table unavailable.
func rowsOfTable(t *testing.T) (names []string) {
	t.Helper()
	_, _, file := parse(t, "server/api/unavailable.go")
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && isSelector(s, "conversation", s.Sel.Name) {
			names = append(names, s.Sel.Name)
		}
		return true
	})
	return names
}

// isSelector reports whether n is the name of an object in a package.
func isSelector(n ast.Node, pkg, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}
