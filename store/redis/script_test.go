package redis

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// allScripts lists the scripts of this package.
var allScripts = []*script{
	admitScript, beginTurnScript, checkScript, claimSecretScript, clearMessagesScript, createKeyScript, createSessionScript,
	deleteSessionScript, endOrphanScript, endTurnScript, findOrphanScript, followScript, forgetRequestsScript, getContextScript,
	getMessageScript, getMessagesScript, getSessionScript, getSummaryScript, getUsageScript, heartbeatScript, journalScript, leaveQueueScript,
	listAuditScript, listKeysScript, listMessagesScript, listSessionsScript, openSocketScript, pingScript, pollScript, putTicketScript,
	removeNodeScript, removePointerScript, resumeTurnScript, revokeKeyScript, rotateKeyScript, saveSummaryScript, setPointerScript,
	setSocketsScript, setTierScript, setVectorsScript, stopReplyScript, takeFramesScript, takeTicketScript, touchKeyScript, updateSessionScript,
	userUseScript,
}

// luaFiles returns the names of the Lua files in a folder below lua, without the extension.
func luaFiles(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := sources.ReadDir(path.Join("lua", folder))
	must(t, err)
	for _, file := range files {
		if name, isLua := strings.CutSuffix(file.Name(), ".lua"); isLua {
			names = append(names, name)
		}
	}
	return names
}

func TestScripts_ComposedText_HasNoMistakes(t *testing.T) {
	t.Parallel()
	for _, sc := range allScripts {
		t.Run(fmt.Sprint(sc.name, " ", sc.is), func(t *testing.T) {
			for _, mistake := range mistakesIn(composed(sc)) {
				t.Error(mistake)
			}
			if _, mistakes := compileLua(sc.compiled().text); len(mistakes) > 0 {
				t.Errorf("the text for servers: %q", mistakes)
			}
		})
	}
}

// composed returns the text of a script before arrange.
func composed(sc *script) string {
	header, operation := framed(source(sc.name+".lua"), sc.is)
	return header + withDefinitions(operation)
}

// withDefinitions returns the definitions that an operation uses, and the operation.
func withDefinitions(operation string) string {
	var text strings.Builder
	for _, d := range libraries().used(operation) {
		text.WriteString(d.text)
	}
	return text.String() + operation
}

// TestMistakesIn_EachMistake_Found adds one mistake to a valid script. mistakesIn must find each mistake.
func TestMistakesIn_EachMistake_Found(t *testing.T) {
	t.Parallel()
	const valid = "local function charge(n) return n end\nlocal WINDOW_SPAN = 61\nreturn charge(WINDOW_SPAN)\n"
	if found := mistakesIn("#!lua\n" + valid); found != nil {
		t.Errorf("a valid script: %q", found)
	}
	for operation, want := range map[string]string{
		"local function charge(n) return 0 end":              "charge is defined twice",
		"local WINDOW_SPAN = 61":                             "WINDOW_SPAN is defined twice",
		"local function f(charge) return charge end":         "charge shadows a definition",
		"for charge = 1, 2 do end":                           "charge shadows a definition",
		"chrge(1)":                                           "unknown global chrge",
		"total = 1":                                          "assigns the global total",
		"redis.call('GET', TAG .. ':s:' .. ARGV[1])":         "builds a key by hand: ':s:'",
		"redis.call('PUBLISH', 'inbox:' .. ARGV[1], 'word')": "builds a key by hand: 'inbox:'",
		"redis.call('EXPIRE', KEYS[1], 130)":                 "number 130",
		"local QUEUE_PLACES = 31":                            "QUEUE_PLACES is 31",
		"return ARGV[1] == 'fifo'":                           "text 'fifo'",
	} {
		found := mistakesIn("#!lua\n" + valid[:strings.Index(valid, "return charge(")] + operation + "\n")
		if !slices.ContainsFunc(found, func(mistake string) bool { return strings.Contains(mistake, want) }) {
			t.Errorf("%s: found %q, want %q", operation, found, want)
		}
	}
}

// luaGlobals lists the globals that scripts may use: globals of Redis, and parts of Lua's standard library.
var luaGlobals = []string{
	"KEYS", "ARGV", "redis", "cjson", "cmsgpack", "struct", "math", "string", "table", "ipairs", "select", "tonumber", "type",
	"unpack",
}

// maxTyped is the largest number that Lua code may contain, for example as an index in ARGV. Larger numbers are limits and times,
// which must come from Go. luaUnits lists the exceptions.
const maxTyped = 16

var luaUnits = []string{"24", "1000"} // hours of a day, milliseconds of a second

// compileLua compiles the text of a script. It returns the syntax tree and two kinds of mistakes: an error of the compiler, and
// globals that are unknown or assigned. After an error of the compiler, the tree is nil.
func compileLua(text string) (chunk []ast.Stmt, mistakes []string) {
	_, code, _ := strings.Cut(text, "\n") // the shebang
	chunk, err := parse.Parse(strings.NewReader(code), "script")
	if err != nil {
		return nil, []string{err.Error()}
	}
	compiled, err := lua.Compile(chunk, "script")
	if err != nil {
		return nil, []string{err.Error()}
	}
	globals(compiled, func(op int, name string) {
		switch {
		case op == lua.OP_SETGLOBAL:
			mistakes = append(mistakes, "assigns the global "+name)
		case !slices.Contains(luaGlobals, name):
			mistakes = append(mistakes, "unknown global "+name)
		}
	})
	return chunk, mistakes
}

// mistakesIn returns the mistakes in a composed script: names that are defined twice or shadowed, unknown globals, names of keys
// that the script builds itself, and numbers and texts that should be constants from Go.
func mistakesIn(text string) (mistakes []string) {
	report := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	chunk, mistakes := compileLua(text)
	if chunk == nil {
		return mistakes
	}
	defined, fromGo := libraries(), make(map[string]string)
	for _, c := range constants() {
		fromGo[c.name] = fmt.Sprint(c.value)
	}
	shadowed := func(names ...string) {
		for _, name := range names {
			if defined[name] != nil {
				report("%s shadows a definition", name)
			}
		}
	}
	prefixes := keyParts()
	walk(reflect.ValueOf(chunk), func(node any, top bool) {
		switch n := node.(type) {
		case []ast.Stmt: // a block
			names := make(map[string]bool)
			for _, stmt := range n {
				if local, ok := stmt.(*ast.LocalAssignStmt); ok {
					for _, name := range local.Names {
						if names[name] {
							report("%s is defined twice", name)
						}
						names[name] = true
					}
				}
			}
		case *ast.LocalAssignStmt:
			if !top {
				shadowed(n.Names...)
				return
			}
			for i, name := range n.Names {
				if want := fromGo[name]; want != "" && i < len(n.Exprs) {
					if is := literal(n.Exprs[i]); is != want {
						report("%s is %s, in Go it is %s", name, is, want)
					}
					n.Exprs[i] = &ast.NilExpr{} // so that walk does not report the constant's number or text
				}
			}
			if name := n.Names[0]; name == "TAG" || generatedNames[name] {
				n.Exprs = nil // so that walk does not report the parts of keys in the generated code
			}
		case *ast.FunctionExpr:
			shadowed(n.ParList.Names...)
		case *ast.NumberForStmt:
			shadowed(n.Name)
		case *ast.GenericForStmt:
			shadowed(n.Names...)
		case *ast.NumberExpr:
			var value float64
			if _, err := fmt.Sscan(n.Value, &value); (err != nil || value > maxTyped) && !slices.Contains(luaUnits, n.Value) {
				report("number %s should be a constant from Go", n.Value)
			}
		case *ast.StringExpr:
			for _, c := range constants() {
				if c.value == n.Value && c.name != "STOP_CLEARED" { // the text of STOP_CLEARED is also the name of a field
					report("text '%s' should be %s", n.Value, c.name)
				}
			}
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.Contains(n.Value, p) }) {
				report("builds a key by hand: '%s'", n.Value)
			}
		}
	})
	return mistakes
}

// generatedNames holds the names of the Lua functions in luaNames.
var generatedNames = func() map[string]bool {
	names := make(map[string]bool)
	for _, n := range luaNames {
		names[n.function] = true
	}
	return names
}()

// keyParts returns the fixed parts of the names of keys, words and channels: the texts before, between and after the parameters.
func keyParts() (parts []string) {
	for _, n := range luaNames {
		for _, part := range regexp.MustCompile(`<\w+>`).Split(n.result, -1) {
			if len(part) > 1 { // a single character, such as waiterMark, occurs in other texts too
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// literal returns the value of a number or string literal, and "" for any other expression.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.NumberExpr:
		return e.Value
	case *ast.StringExpr:
		return e.Value
	}
	return ""
}

// globals calls visit for each instruction that reads or sets a global in a compiled function, and in the functions within.
func globals(p *lua.FunctionProto, visit func(op int, name string)) {
	for _, instruction := range p.Code {
		if op := int(instruction >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
			visit(op, p.Constants[instruction&0x3ffff].String())
		}
	}
	for _, inner := range p.FunctionPrototypes {
		globals(inner, visit)
	}
}

// walk calls visit with each node of a syntax tree. top is true for a statement at the top level of the script.
func walk(v reflect.Value, visit func(node any, top bool)) { walkAt(v, 0, visit) }

// walkAt does the same as walk for the part of a tree that begins with v, at a depth.
func walkAt(v reflect.Value, depth int, visit func(node any, top bool)) {
	switch v.Kind() {
	case reflect.Interface:
		walkAt(v.Elem(), depth, visit)
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			visit(v.Interface(), depth == 1)
			for i := range v.Elem().NumField() {
				walkAt(v.Elem().Field(i), depth+1, visit)
			}
		}
	case reflect.Slice:
		if block, ok := v.Interface().([]ast.Stmt); ok {
			visit(block, false)
		}
		for i := range v.Len() {
			walkAt(v.Index(i), depth+1, visit)
		}
	}
}

// TestScripts_EachLuaFile_HasGoFileAndHead checks that NAME.go defines the script lua/NAME.lua. The first lines of the Lua file
// must document KEYS, ARGV and the result.
func TestScripts_EachLuaFile_HasGoFileAndHeadComment(t *testing.T) {
	names := luaFiles(t, ".")
	for _, name := range names {
		if !slices.ContainsFunc(allScripts, func(sc *script) bool { return sc.name == name }) {
			t.Errorf("lua/%s.lua is not among allScripts", name)
		}
		if !strings.Contains(goFile(t, name+".go"), fmt.Sprintf("newScript(%q, ", name)) {
			t.Errorf("%s.go does not define the script %[1]s", name)
		}
		head, _, _ := strings.Cut(source(name+".lua"), "\nlocal ")
		if !strings.HasPrefix(head, "-- ") || !strings.Contains(head, "\n-- Result: ") {
			t.Errorf("the head of lua/%s.lua does not document the purpose and the result", name)
		}
		for _, list := range []string{"KEYS", "ARGV"} {
			if strings.Contains(source(name+".lua"), list+"[") && !strings.Contains(head, "\n-- "+list+"[1]") {
				t.Errorf("the head of lua/%s.lua does not document %s", name, list)
			}
		}
	}
}

// TestScripts_LibraryHeads_ListDefinitions checks the line "Defines: …" in each library. It must list every definition that other
// files use, and nothing that the library does not define.
func TestScripts_LibraryHeads_ListDefinitions(t *testing.T) {
	all := libraries()
	for _, name := range luaFiles(t, "lib") {
		found := regexp.MustCompile(`(?m)^-- Defines: (.*)\.$`).FindStringSubmatch(source("lib/" + name + ".lua"))
		if found == nil {
			t.Errorf("lua/lib/%s.lua has no line \"-- Defines: ….\"", name)
			continue
		}
		listed := strings.Split(found[1], ", ")
		for _, defined := range listed {
			if d := all[defined]; d == nil || d.library != name+".lua" {
				t.Errorf("lua/lib/%s.lua does not define %s", name, defined)
			}
		}
		uses := func(text string) {
			for _, used := range identifiers(text) {
				if d := all[used]; d != nil && d.library == name+".lua" && !slices.Contains(listed, used) {
					t.Errorf("lua/lib/%s.lua does not list %s, which another file uses", name, used)
				}
			}
		}
		for _, operation := range luaFiles(t, ".") {
			uses(source(operation + ".lua"))
		}
		for _, d := range all {
			if d.library != name+".lua" {
				uses(d.text)
			}
		}
	}
}

// TestScripts_LibraryDefinitions_AllUsed checks that at least one script uses each definition of the libraries and the prelude.
func TestScripts_LibraryDefinitions_AllUsed(t *testing.T) {
	t.Parallel()
	for name, d := range libraries() {
		if !slices.ContainsFunc(allScripts, func(sc *script) bool { return strings.Contains(composed(sc), d.text) }) {
			t.Errorf("no script uses %s of %s", name, d.library)
		}
	}
}

// TestScripts_WakesAndReads_MatchText checks two properties of each script. A script with wakes can wake waiters. A script with
// reads contains no command that writes.
func TestScripts_WakesAndReads_MatchText(t *testing.T) {
	t.Parallel()
	for _, sc := range allScripts {
		operation := withDefinitions(source(sc.name + ".lua"))
		// end_orphan runs in a pipeline, so it returns no list of waiters. Inboxes wake its waiters.
		if sc.has(wakes) != strings.Contains(operation, "local WOKEN") && sc != endOrphanScript {
			t.Errorf("%s: the property wakes is %v, which does not match the script's text", sc.name, sc.has(wakes))
		}
		if sc.has(reads) && regexp.MustCompile(`'(SET|DEL|UNLINK|HSET|HDEL|HINCRBY|ZADD|ZREM|LPUSH|PEXPIRE|SETRANGE)\w*'`).MatchString(operation) {
			t.Errorf("%s has the property reads, but its text contains a command that writes", sc.name)
		}
	}
}

// TestArrange_EachCase_SendsExpectedText checks where arrange defines functions, and which names it replaces by values.
func TestArrange_EachCase_SendsExpectedText(t *testing.T) {
	l := make(library)
	l.parse("lib", strings.Join([]string{
		"local LIMIT = 61", "local NAME = 'a'", "local now = clock()",
		"local function leaf(n) return n + LIMIT end",
		"local function middle(n)", "  return leaf(n) -- LIMIT", "end",
		"local function outer(n) return middle(n) end",
		"local function both(n) return 'LIMIT' .. LIMIT .. n.LIMIT end",
		"local function other(n) return both(n) .. both(now) end",
		"local list = {other(1)}", "",
	}, "\n"))
	for operation, want := range map[string]string{
		"return leaf(LIMIT)\n": "local function leaf(n) return n + 61 end\nreturn leaf(61)\n",
		"return outer(1)\n": "local function outer(n)\nlocal function middle(n)\nlocal function leaf(n) return n + 61 end\n" +
			"\n  return leaf(n) -- LIMIT\nend\n return middle(n) end\nreturn outer(1)\n",
		"return outer(leaf(1))\n": "local function leaf(n) return n + 61 end\nlocal function outer(n)\nlocal function middle(n)\n" +
			"  return leaf(n) -- LIMIT\nend\n return middle(n) end\nreturn outer(leaf(1))\n",
		"return NAME .. now, list\n": "local now = clock()\nlocal function other(n)\n" +
			"local function both(n) return 'LIMIT' .. 61 .. n.LIMIT end\n return both(n) .. both(now) end\nlocal list = {other(1)}\n" +
			"return 'a' .. now, list\n",
	} {
		same(t, "the text of "+operation, arrange(l.used(operation), operation), want)
	}
}
