package redis

import (
	"regexp"
	"strings"
)

// A call of a script creates each function and each value at the top level of its text, and those that functions share cost most.
// So the text that servers get differs from the composed text (compose.go) in two ways:
//
//   - The value of a constant from Go replaces the constant's name.
//   - A function that only one other function needs is defined inside that function. So Redis creates it only when the other
//     function runs.
//
// The effect of a script stays the same. BenchmarkScripts shows what a script costs.

// arrange returns the definitions, which are in the order of library.used, followed by an operation.
func arrange(definitions []*definition, operation string) string {
	inside := make(map[*definition][]*definition) // the functions to be defined inside a function; nil for the top level
	around := enclosing(definitions, operation)
	values := make(map[string]string)
	for _, d := range definitions {
		if constant := constantValue.FindStringSubmatch(d.text); constant != nil {
			values[d.names[0]] = constant[1]
		} else {
			inside[around[d]] = append(inside[around[d]], d)
		}
	}
	var out strings.Builder
	var write func(d *definition)
	write = func(d *definition) {
		head := functionHead.FindString(d.text) // "" for a value
		out.WriteString(head)
		if len(inside[d]) > 0 {
			out.WriteByte('\n')
		}
		for _, inner := range inside[d] {
			write(inner)
		}
		out.WriteString(d.text[len(head):])
	}
	for _, d := range inside[nil] {
		write(d)
	}
	return withValues(out.String()+operation, values)
}

// enclosing returns, for each function, the innermost function that every use of it goes through; nil for the top level, and for
// values. definitions are in the order of library.used, so a definition stands before its uses.
func enclosing(definitions []*definition, operation string) map[*definition]*definition {
	named := make(library)
	for _, d := range definitions {
		for _, name := range d.names {
			named[name] = d
		}
	}
	users := make(map[*definition][]*definition)
	use := func(user *definition, names []string) {
		for _, name := range names {
			if d := named[name]; d != nil && d != user {
				users[d] = append(users[d], user)
			}
		}
	}
	use(nil, identifiers(operation))
	around, depth := make(map[*definition]*definition), map[*definition]int{nil: 0}
	for i := len(definitions) - 1; i >= 0; i-- {
		d := definitions[i]
		if !d.isFunction() {
			use(nil, d.uses())
			depth[d] = 1
			continue
		}
		outer := users[d][0]
		for _, other := range users[d][1:] {
			for outer != other {
				if depth[outer] < depth[other] {
					outer, other = other, outer
				}
				outer = around[outer]
			}
		}
		around[d], depth[d] = outer, depth[outer]+1
		use(d, d.uses())
	}
	return around
}

var (
	constantValue = regexp.MustCompile(`^local [A-Z]\w* = (\d+|'[^'\\]*')\n$`)
	functionHead  = regexp.MustCompile(`^local function \w+\([^)]*\)`)
	// token matches comments, strings and words. See notCode and word.
	token = regexp.MustCompile(notCode.String() + `|` + word.String())
)

func (d *definition) isFunction() bool { return functionHead.MatchString(d.text) }

// withValues replaces names in a Lua text by their values. It changes no comments, strings, and names of fields.
func withValues(text string, values map[string]string) string {
	return token.ReplaceAllStringFunc(text, func(token string) string {
		name, concatenated := strings.CutPrefix(token, "..")
		value, ok := values[name]
		switch {
		case !ok:
			return token
		case concatenated:
			return ".. " + value
		}
		return value
	})
}
