package server

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fieldError is what is wrong with a request: Reason reads after the name of the field ("must be a string"), or, where
// the request as a whole is wrong and Field is "", on its own.
type fieldError struct {
	Field  string // a dotted path: "contextConfig.maxTokens", "scopes.0"
	Reason string
}

// maxDepth is how many objects and lists a request may nest, itself included. maxMembers is how many members an object
// may have, and a list that is not free in form: more than the largest metadata has room for.
const (
	maxDepth   = 64
	maxMembers = 4096
)

// decodeStrict decodes the JSON object body into a struct, and is the only way in for bodies and frames (design
// section 2, validation). into points to a struct without embedded ones; its fields may be structs, lists, maps,
// strings, booleans and numbers, pointers to them, json.RawMessage for what is free in form, and types that decode
// themselves.
//
// What encoding/json lets through is refused: unknown fields and those that differ in case, a name twice in an object
// (also in the free ones, and however it is escaped), null for a field, numbers for whole ones that are not written as
// such (1.0, 1e3), NUL, invalid UTF-8, halves of surrogate pairs, numbers beyond a float64, and what is beyond the bounds above.
// What is accepted decodes as encoding/json does it. On an error into is unchanged. The time is linear in body.
func decodeStrict(body []byte, into any) *fieldError {
	switch {
	case len(body) == 0:
		return &fieldError{"", "the body is empty"}
	case !json.Valid(body):
		return notOneValue(body)
	}
	c := checker{text: string(body)}
	c.space()
	if c.text[c.at] != '{' {
		return &fieldError{"", "the body must be a JSON object"}
	}
	if e := c.value(reflect.TypeOf(into).Elem(), 1); e != nil {
		return e
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &fieldError{"", "the body cannot be decoded"} // the fuzz target has found no way here
	}
	return nil
}

// notOneValue says what is wrong with what is not one JSON value.
func notOneValue(body []byte) *fieldError {
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(body)).Decode(&first) == nil {
		return &fieldError{"", "the body must end after its JSON object"}
	}
	return &fieldError{"", "the body is not valid JSON"}
}

// under returns e as seen from around the field name.
func (e *fieldError) under(name string) *fieldError {
	const longest = 64
	switch {
	case name == "":
		name = `""` // a field without a name is not the whole body
	case len(name) > longest: // whoever sent it knows the rest
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	if e.Field != "" {
		name += "." + e.Field
	}
	return &fieldError{name, e.Reason}
}

// checker walks over a JSON text that is known to be valid, so it need not look for what cannot be there, and holds it
// against the type that it is to be decoded into.
type checker struct {
	text string
	at   int // the next byte
}

// What a value is, by its first byte; that of numbers and of true and false is one of several.
const (
	jsonAny    = 0
	jsonObject = '{'
	jsonList   = '['
	jsonString = '"'
	jsonBool   = 't'
	jsonNumber = '0'
	jsonNull   = 'n'
)

// value checks the value that begins here, and moves behind it. t is nil for what is free in form.
func (c *checker) value(t reflect.Type, depth int) *fieldError {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	start, kind, want := c.at, c.kind(), wanted(t)
	switch {
	case t != nil && kind == jsonNull && want == jsonAny:
		return &fieldError{"", "must not be null"}
	case want != jsonAny && kind != want:
		return &fieldError{"", mustBe(t, want, kind)}
	case depth > maxDepth:
		return &fieldError{"", "is nested too deeply: at most " + strconv.Itoa(maxDepth) + " levels"}
	}
	var e *fieldError
	switch kind {
	case jsonObject:
		e = c.object(t, depth)
	case jsonList:
		e = c.list(t, depth)
	case jsonString:
		_, e = c.string()
	case jsonNumber:
		e = c.number(t)
	default:
		c.word()
	}
	if e == nil && t != nil && t != reflect.TypeFor[json.RawMessage]() && decodesItself(t) {
		if json.Unmarshal([]byte(c.text[start:c.at]), reflect.New(t).Interface()) != nil {
			e = &fieldError{"", "is not valid"}
		}
	}
	return e
}

// mustBe says what a value of a t must be, and not that kind.
func mustBe(t reflect.Type, want, kind byte) string {
	reason := "must be "
	switch {
	case want == jsonObject:
		reason += "an object"
	case want == jsonList:
		reason += "a list"
	case want == jsonString:
		reason += "a string"
	case want == jsonBool:
		reason += "true or false"
	case t.Kind() <= reflect.Uintptr:
		reason += "a whole number"
	default:
		reason += "a number"
	}
	if kind == jsonNull {
		reason += ", not null"
	}
	return reason
}

// kind returns what the value that begins here is.
func (c *checker) kind() byte {
	switch b := c.text[c.at]; b {
	case jsonObject, jsonList, jsonString, jsonNull, jsonBool:
		return b
	case 'f':
		return jsonBool
	}
	return jsonNumber
}

// wanted returns what a value must be to be decoded into a t.
func wanted(t reflect.Type) byte {
	if t == nil || decodesItself(t) {
		return jsonAny
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return jsonObject
	case reflect.Slice, reflect.Array:
		return jsonList
	case reflect.String:
		return jsonString
	case reflect.Bool:
		return jsonBool
	case reflect.Interface:
		return jsonAny
	}
	return jsonNumber
}

// decodesItself reports whether t's own method decodes it, as json.RawMessage's does.
func decodesItself(t reflect.Type) bool {
	if t.PkgPath() == "" {
		return false // no named type, so it has no methods; and that is quickly seen
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func (c *checker) object(t reflect.Type, depth int) *fieldError {
	var seen nameSet
	members := 0
	c.at++
	for {
		c.space()
		if c.text[c.at] == '}' {
			c.at++
			return nil
		}
		name, e := c.name()
		if e != nil {
			return e
		}
		if members++; members > maxMembers {
			return &fieldError{"", tooMany}
		}
		of, e := member(t, name)
		if e == nil && !seen.add(name) {
			e = &fieldError{"", "appears more than once"}
		}
		if e == nil {
			e = c.value(of, depth+1)
		}
		if e != nil {
			return e.under(name)
		}
		c.space()
		if c.text[c.at] == ',' {
			c.at++
		}
	}
}

const tooMany = "has too many entries: at most 4,096"

func (c *checker) list(t reflect.Type, depth int) *fieldError {
	var of reflect.Type
	if t != nil && wanted(t) == jsonList {
		of = t.Elem()
	}
	c.at++
	for i := 0; ; i++ {
		c.space()
		if c.text[c.at] == ']' {
			c.at++
			return nil
		}
		if of != nil && i == maxMembers {
			return &fieldError{"", tooMany}
		}
		if e := c.value(of, depth+1); e != nil {
			return e.under(strconv.Itoa(i))
		}
		c.space()
		if c.text[c.at] == ',' {
			c.at++
		}
	}
}

// name reads the name of a member and its colon.
func (c *checker) name() (string, *fieldError) {
	quoted, e := c.string()
	if e != nil {
		return "", &fieldError{"", "the name of a field " + e.Reason}
	}
	name := quoted[1 : len(quoted)-1]
	if strings.IndexByte(name, '\\') >= 0 {
		_ = json.Unmarshal([]byte(quoted), &name) // it is valid
	}
	c.space()
	c.at++ // the colon
	c.space()
	return name, nil
}

// member returns the type that the member name of a t is decoded into, nil for what is free in form.
func member(t reflect.Type, name string) (reflect.Type, *fieldError) {
	if t == nil || wanted(t) != jsonObject {
		return nil, nil
	}
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	reason := "is not a known field"
	for i := range t.NumField() {
		f := t.Field(i)
		known, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if known == "" {
			known = f.Name
		}
		switch {
		case known == "-" || !f.IsExported():
		case known == name:
			return f.Type, nil
		case strings.EqualFold(known, name):
			reason += ": it is spelled " + known
		}
	}
	return nil, &fieldError{"", reason}
}

// string reads a string and returns it as it stands, quotes and escapes included.
func (c *checker) string() (string, *fieldError) {
	start := c.at
	for c.at++; c.text[c.at] != '"'; c.at++ {
		if c.text[c.at] != '\\' {
			continue
		}
		if c.at++; c.text[c.at] != 'u' {
			continue
		}
		switch r := c.hex(c.at + 1); {
		case r == 0:
			return "", &fieldError{"", "must not contain NUL"}
		case r >= 0xd800 && r < 0xdc00 && c.text[c.at+5] == '\\' && c.text[c.at+6] == 'u' && c.hex(c.at+7)&^0x3ff == 0xdc00:
			c.at += 6
		case r >= 0xd800 && r < 0xe000:
			return "", &fieldError{"", "has half of a surrogate pair"}
		}
		c.at += 4
	}
	c.at++
	quoted := c.text[start:c.at]
	if !utf8.ValidString(quoted) {
		return "", &fieldError{"", "is not valid UTF-8"}
	}
	return quoted, nil
}

// hex returns the value of the four digits at i.
func (c *checker) hex(i int) rune {
	r, _ := strconv.ParseUint(c.text[i:i+4], 16, 16)
	return rune(r)
}

func (c *checker) number(t reflect.Type) *fieldError {
	start := c.at
	for c.at < len(c.text) && c.text[c.at] != ',' && c.text[c.at] != '}' && c.text[c.at] != ']' && c.text[c.at] > ' ' {
		c.at++
	}
	literal := c.text[start:c.at]
	bits, whole, unsigned := 64, false, false
	if t != nil && wanted(t) == jsonNumber {
		bits = t.Bits()
		unsigned = t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr
		whole = unsigned || t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64
	}
	var err error
	switch {
	case whole && strings.ContainsAny(literal, ".eE"):
		return &fieldError{"", "must be a whole number, without a fraction or an exponent"}
	case t == nil && len(literal) < 300 && strings.IndexByte(literal, 'e') < 0 && strings.IndexByte(literal, 'E') < 0:
		return nil // too short to be too large
	case unsigned:
		_, err = strconv.ParseUint(literal, 10, bits)
	case whole:
		_, err = strconv.ParseInt(literal, 10, bits)
	default:
		_, err = strconv.ParseFloat(literal, bits)
	}
	if err != nil {
		return &fieldError{"", "is out of range"}
	}
	return nil
}

// word moves behind true, false or null.
func (c *checker) word() {
	for c.at < len(c.text) && c.text[c.at] >= 'a' && c.text[c.at] <= 'z' {
		c.at++
	}
}

func (c *checker) space() {
	for c.at < len(c.text) && c.text[c.at] <= ' ' {
		c.at++
	}
}

// nameSet is the names in an object: few as a rule, and then a list is cheaper than a map.
type nameSet struct {
	few  [32]string
	n    int // of few
	many map[string]struct{}
}

// add reports whether name is new.
func (s *nameSet) add(name string) bool {
	for _, other := range s.few[:s.n] {
		if other == name {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	if s.many == nil {
		s.many = make(map[string]struct{})
	}
	before := len(s.many)
	s.many[name] = struct{}{}
	return len(s.many) > before
}
