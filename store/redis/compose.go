package redis

import (
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"
)

// The first run of a script composes its text. An operation (lua/NAME.lua) uses definitions of the libraries (lua/lib) and of the
// prelude, which is generated from constants.go and schema.go. The text consists of the definitions that the operation uses,
// directly or indirectly, and the operation. The operation does not declare them: they are found by name. Redis keeps no state
// between scripts and executes every definition at every call. So a script contains no unused definitions, and arrange.go makes
// the used definitions cheap (BenchmarkScripts).
//
// A library is a sequence of definitions. A definition begins with "local" in the first column. Its other lines are indented,
// except a last line that begins with "end", "}" or ")". Comments between definitions are not sent to Redis.
// TestScripts_ComposedText_HasNoMistakes checks the texts with a Lua compiler.

//go:embed lua
var sources embed.FS

// definition defines a local function, or one or more local values.
type definition struct {
	library string // file name of the library; preludeName for the prelude
	names   []string
	text    string
	uses    func() []string // returns the identifiers in text
}

const preludeName = "(prelude)"

// library holds the definitions of all libraries by name.
type library map[string]*definition

// libraries parses the files in lua/lib and the prelude. It panics if one is malformed; tests would find that before a release.
var libraries = sync.OnceValue(func() library {
	l := make(library)
	l.parse(preludeName, prelude())
	files, err := sources.ReadDir("lua/lib")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		l.parse(file.Name(), source(path.Join("lib", file.Name())))
	}
	return l
})

// source returns the text of the file lua/<name>.
func source(name string) string {
	text, err := sources.ReadFile("lua/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	localFunction = regexp.MustCompile(`^local function (\w+)\(`)
	localValues   = regexp.MustCompile(`^local (\w+(?:, \w+)*) = `)
	continues     = regexp.MustCompile(`^(\s|end\b|\}|\))`)
)

// parse adds the definitions in a library's text. name is the library's file name.
func (l library) parse(name, text string) {
	var last *definition
	for line := range strings.Lines(text) {
		function, values := localFunction.FindStringSubmatch(line), localValues.FindStringSubmatch(line)
		switch {
		case function != nil:
			last = l.add(name, line, function[1])
		case values != nil:
			last = l.add(name, line, strings.Split(values[1], ", ")...)
		case strings.HasPrefix(line, "--") || strings.TrimSpace(line) == "":
		case last != nil && continues.MatchString(line):
			last.text += line
		default:
			panic(fmt.Sprintf("redis: library %s: %q neither begins nor continues a definition", name, line))
		}
	}
}

func (l library) add(name, text string, names ...string) *definition {
	d := &definition{library: name, names: names, text: text}
	d.uses = sync.OnceValue(func() []string { return identifiers(d.text) }) // many scripts need the same definitions
	for _, defined := range names {
		if other := l[defined]; other != nil {
			panic(fmt.Sprintf("redis: libraries %s and %s both define %s", other.library, name, defined))
		}
		l[defined] = d
	}
	return d
}

// used returns the definitions that text uses, directly or indirectly. Each stands after the definitions that it uses.
func (l library) used(text string) (definitions []*definition) {
	seen := make(map[*definition]bool)
	var add func(names []string)
	add = func(names []string) {
		for _, name := range names {
			if d := l[name]; d != nil && !seen[d] {
				seen[d] = true
				add(d.uses())
				definitions = append(definitions, d)
			}
		}
	}
	add(identifiers(text))
	return definitions
}

// notCode matches comments and strings. word matches an identifier or a number, with an operator "..", "." or ":" before it.
var (
	notCode = regexp.MustCompile(`--[^\n]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"`)
	word    = regexp.MustCompile(`(\.\.|[.:])?\w+`)
)

// identifiers returns the identifiers in a Lua text, each once, without the names of fields and methods. Keywords and numbers are
// among them.
func identifiers(text string) []string {
	var names []string
	seen := make(map[string]bool)
	for _, w := range word.FindAllString(notCode.ReplaceAllString(text, "''"), -1) {
		w = strings.TrimPrefix(w, "..") // the concatenation operator
		if !seen[w] && w[0] != '.' && w[0] != ':' {
			seen[w] = true
			names = append(names, w)
		}
	}
	return names
}
