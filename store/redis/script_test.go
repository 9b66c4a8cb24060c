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

// allScripts are the scripts of this package.
var allScripts = []*script{
	admitScript, beginTurnScript, checkScript, claimSecretScript, clearMessagesScript, createKeyScript, createSessionScript,
	deleteSessionScript, endOrphanScript, endTurnScript, findOrphanScript, followScript, getContextScript, getMessageScript,
	getMessagesScript, getSessionScript, getUsageScript, heartbeatScript, journalScript, leaveQueueScript, listKeysScript,
	listMessagesScript, listSessionsScript, pingScript, pollScript, removeNodeScript, resumeTurnScript, revokeKeyScript,
	rotateKeyScript, saveSummaryScript, setPointerScript, setTierScript, setVectorsScript, stopReplyScript, ticketKeyScript,
	touchKeyScript, useTicketScript,
}

// luaFiles returns the names of the Lua files in a folder below lua, without their ending.
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

// TestScripts_Composed_NoMistakes checks the text of each script as a server gets it.
func TestScripts_Composed_NoMistakes(t *testing.T) {
	t.Parallel()
	for _, sc := range allScripts {
		t.Run(fmt.Sprint(sc.name, " ", sc.is), func(t *testing.T) {
			for _, mistake := range mistakesIn(sc.compiled().text) {
				t.Error(mistake)
			}
		})
	}
}

// TestScripts_EachMistake_Found breaks a composed script in each way that TestScripts_Composed_NoMistakes must notice.
func TestScripts_EachMistake_Found(t *testing.T) {
	t.Parallel()
	const valid = "local function charge(n) return n end\nlocal WINDOW_SPAN = 61\nreturn charge(WINDOW_SPAN)\n"
	if found := mistakesIn("#!lua\n" + valid); found != nil {
		t.Errorf("a valid script: %q", found)
	}
	for operation, want := range map[string]string{
		"local function charge(n) return 0 end":              "charge is defined twice",
		"local WINDOW_SPAN = 61":                             "WINDOW_SPAN is defined twice",
		"local function f(charge) return charge end":         "charge hides a definition",
		"for charge = 1, 2 do end":                           "charge hides a definition",
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

// What a script may use beside its own definitions: what Redis gives it, and the parts of the standard library that it needs.
var luaGlobals = []string{
	"KEYS", "ARGV", "redis", "cmsgpack", "struct", "math", "string", "table", "ipairs", "select", "tonumber", "type", "unpack",
}

// maxTyped is the largest number that may be typed in Lua: positions in ARGV and records. Limits and times come from Go. 24 and
// 1000 are units of time.
const maxTyped = 11

var luaUnits = []string{"24", "1000"}

// mistakesIn returns what is wrong with a composed script: names defined twice or hidden, unknown globals, names of keys and
// constants that do not come from Go.
func mistakesIn(text string) (mistakes []string) {
	report := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	_, code, _ := strings.Cut(text, "\n") // the shebang
	chunk, err := parse.Parse(strings.NewReader(code), "script")
	if err != nil {
		return []string{err.Error()}
	}
	compiled, err := lua.Compile(chunk, "script")
	if err != nil {
		return []string{err.Error()}
	}
	globals(compiled, func(op int, name string) {
		switch {
		case op == lua.OP_SETGLOBAL:
			report("assigns the global %s", name)
		case !slices.Contains(luaGlobals, name):
			report("unknown global %s", name)
		}
	})

	defined, fromGo := libraries(), make(map[string]string)
	for _, c := range constants() {
		fromGo[c.name] = fmt.Sprint(c.value)
	}
	hidden := func(names ...string) {
		for _, name := range names {
			if defined[name] != nil {
				report("%s hides a definition", name)
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
				hidden(n.Names...)
				return
			}
			for i, name := range n.Names {
				if want := fromGo[name]; want != "" && i < len(n.Exprs) {
					if is := literal(n.Exprs[i]); is != want {
						report("%s is %s, in Go it is %s", name, is, want)
					}
					n.Exprs[i] = &ast.NilExpr{} // whose number or text is right
				}
			}
			if name := n.Names[0]; name == "TAG" || generatedNames[name] {
				n.Exprs = nil // whose text is right
			}
		case *ast.FunctionExpr:
			hidden(n.ParList.Names...)
		case *ast.NumberForStmt:
			hidden(n.Name)
		case *ast.GenericForStmt:
			hidden(n.Names...)
		case *ast.NumberExpr:
			var value float64
			if _, err := fmt.Sscan(n.Value, &value); (err != nil || value > maxTyped) && !slices.Contains(luaUnits, n.Value) {
				report("number %s should be a constant from Go", n.Value)
			}
		case *ast.StringExpr:
			for _, c := range constants() {
				if c.value == n.Value && c.name != "STOP_CLEARED" { // which is also the name of a field
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

var generatedNames = func() map[string]bool {
	names := make(map[string]bool)
	for _, n := range luaNames {
		names[n.function] = true
	}
	return names
}()

// keyParts returns what stands in names of keys between the tag and the parameters.
func keyParts() (parts []string) {
	for _, n := range luaNames {
		for _, part := range regexp.MustCompile(`<\w+>`).Split(n.result, -1) {
			if len(part) > 1 { // one letter, such as the mark of a waiter, says nothing
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// literal returns a number or a string that is written out; "" for any other expression.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.NumberExpr:
		return e.Value
	case *ast.StringExpr:
		return e.Value
	}
	return ""
}

// globals calls visit with each instruction of a function, and of those within it, that reads or sets a global.
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

// walk calls visit with each node of a syntax tree. top says that it is a statement of the script itself.
func walk(v reflect.Value, visit func(node any, top bool)) { walkAt(v, 0, visit) }

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

// TestScripts_EachLuaFile_HasGoFileAndHead checks that lua/NAME.lua is run by NAME.go, and says at its head what it takes and returns.
func TestScripts_EachLuaFile_HasGoFileAndHead(t *testing.T) {
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
			t.Errorf("lua/%s.lua does not say what it does, and its result", name)
		}
		for _, list := range []string{"KEYS", "ARGV"} {
			if strings.Contains(source(name+".lua"), list+"[") && !strings.Contains(head, "\n-- "+list+"[1]") {
				t.Errorf("lua/%s.lua does not say what %s are", name, list)
			}
		}
	}
}

// TestScripts_LibraryHeads_ListDefinitions checks that each library lists what it defines for others.
func TestScripts_LibraryHeads_ListDefinitions(t *testing.T) {
	all := libraries()
	for _, name := range luaFiles(t, "lib") {
		found := regexp.MustCompile(`(?m)^-- Defines: (.*)\.$`).FindStringSubmatch(source("lib/" + name + ".lua"))
		if found == nil {
			t.Errorf("lua/lib/%s.lua does not say what it defines", name)
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
					t.Errorf("lua/lib/%s.lua does not list %s, which others use", name, used)
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

// TestScripts_LibraryDefinitions_AllUsed checks that no library or prelude defines what no script uses.
func TestScripts_LibraryDefinitions_AllUsed(t *testing.T) {
	t.Parallel()
	for name, d := range libraries() {
		if !slices.ContainsFunc(allScripts, func(sc *script) bool { return strings.Contains(sc.compiled().text, d.text) }) {
			t.Errorf("%s of %s is used by no script", name, d.library)
		}
	}
}

// TestScripts_Properties_MatchText checks what a script says of itself against its text.
func TestScripts_Properties_MatchText(t *testing.T) {
	t.Parallel()
	for _, sc := range allScripts {
		operation := libraries().compose(source(sc.name + ".lua"))
		if sc.has(wakes) != strings.Contains(operation, "local WOKEN") && sc != endOrphanScript { // whoever it wakes is on another node
			t.Errorf("%s: wakes is %v", sc.name, sc.has(wakes))
		}
		if sc.has(reads) && regexp.MustCompile(`'(SET|DEL|UNLINK|HSET|HDEL|HINCRBY|ZADD|ZREM|LPUSH|PEXPIRE|SETRANGE)\w*'`).MatchString(operation) {
			t.Errorf("%s: it reads, but it writes", sc.name)
		}
	}
}
