package api

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fieldError is an error in a request. Reason continues a sentence that begins with the field ("must be a string"). If the
// request as a whole is invalid, Field is "" and Reason is a sentence of its own.
type fieldError struct {
	Field  string // a dotted path: "contextConfig.maxTokens", "scopes.0"
	Reason string
}

const (
	// maxDepth is the maximum depth of a value in a request; the request itself has depth 1. Real requests need fewer than
	// ten levels. The bound limits the recursion, and so the stack.
	maxDepth = 64
	// maxMembers is the maximum number of members of an object, or of entries of a list with a declared type. Metadata of 16
	// KiB cannot hold that many members.
	maxMembers = 4096
)

// Decode decodes a JSON object into a struct, strictly. The error is an [Error] that names the field.
//
// into must point to a struct without embedded structs. Its fields may be structs, lists, maps, strings, booleans and numbers,
// pointers to these, json.RawMessage for any JSON, and types with a decoding method of their own.
//
// Decode refuses the following input, although encoding/json accepts it:
//
//   - unknown fields, fields that differ in case, and null for a field
//   - a name that appears twice in an object, also inside json.RawMessage, and also if one of the two has escapes
//   - integers with a fraction or an exponent (1.0, 1e3), and numbers beyond a float64
//   - NUL, invalid UTF-8 and lone surrogates
//   - values deeper than maxDepth, and objects or typed lists with more than maxMembers entries
//
// For all other input, the result is that of encoding/json. On an error, into is unchanged. The time is linear in the length
// of body.
func Decode(body []byte, into any) error { return invalid(decodeStrict(body, into, false)) }

// DecodePatch does the same as [Decode] for a merge patch (RFC 7396): an [Optional] may also be null.
func DecodePatch(body []byte, into any) error { return invalid(decodeStrict(body, into, true)) }

func invalid(e *fieldError) error {
	if e == nil {
		return nil
	}
	return Invalid(e.Field, e.Reason)
}

func decodeStrict(body []byte, into any, patch bool) *fieldError {
	switch {
	case len(body) == 0:
		return &fieldError{"", "the body is empty"}
	case !json.Valid(body):
		return notOneValue(body)
	}
	c := checker{text: string(body), patch: patch}
	c.space()
	if c.text[c.at] != '{' {
		return &fieldError{"", "the body must be a JSON object"}
	}
	if e := c.value(reflect.TypeOf(into).Elem(), 1); e != nil {
		return e
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &fieldError{"", "the body cannot be decoded"} // FuzzStrictDecoding has found no input that gets here
	}
	return nil
}

// notOneValue returns the error for a body that is not exactly one JSON value.
func notOneValue(body []byte) *fieldError {
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(body)).Decode(&first) == nil {
		return &fieldError{"", "the body must end after its JSON object"}
	}
	return &fieldError{"", "the body is not valid JSON"}
}

// under returns e with name in front of the field's path.
func (e *fieldError) under(name string) *fieldError {
	const longest = 64
	switch {
	case name == "":
		name = `""` // the field with the empty name; "" would mean the whole body
	case len(name) > longest: // an error text must not grow with the request
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	if e.Field != "" {
		name += "." + e.Field
	}
	return &fieldError{name, e.Reason}
}

// checker walks over a JSON text once and compares it with the Go type that will receive it. The text must be valid JSON. So
// the checker does not check the syntax, and it cannot run past the end.
type checker struct {
	text  string
	at    int  // the next byte
	patch bool // an Optional may be null
}

// The kinds of JSON values. Each constant is the first byte of such a value: jsonNumber stands for any digit or sign, jsonBool
// for t and f.
const (
	jsonAny    = 0
	jsonObject = '{'
	jsonList   = '['
	jsonString = '"'
	jsonBool   = 't'
	jsonNumber = '0'
	jsonNull   = 'n'
)

// value checks the value at c.at and moves past it. t is nil if any JSON is allowed.
func (c *checker) value(t reflect.Type, depth int) *fieldError {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if of, ok := optional(t); ok {
		if c.patch && c.kind() == jsonNull {
			c.word()
			return nil
		}
		return c.value(of, depth)
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

// mustBe returns the reason in the error for a value of the wrong kind: the type t needs a value of the kind want.
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

// kind returns the kind of the value at c.at.
func (c *checker) kind() byte {
	switch b := c.text[c.at]; b {
	case jsonObject, jsonList, jsonString, jsonNull, jsonBool:
		return b
	case 'f':
		return jsonBool
	}
	return jsonNumber
}

// wanted returns the kind of JSON value that t accepts.
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

// decodesItself reports whether t has its own method for decoding, as json.RawMessage has.
func decodesItself(t reflect.Type) bool {
	if t.PkgPath() == "" {
		return false // a built-in or unnamed type has no methods; this test is much cheaper than Implements
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
		_ = json.Unmarshal([]byte(quoted), &name) // cannot fail: quoted is a valid string
	}
	c.space()
	c.at++ // the colon
	c.space()
	return name, nil
}

// member returns the type that t has for the member with that name. The type is nil if any JSON is allowed.
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

// string reads a string and returns its source text, including quotes and escapes.
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

// hex returns the value of the four hexadecimal digits at i.
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
		return nil // fewer than 300 digits always fit into a float64
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

// word moves past true, false or null.
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

// nameSet is the set of the names in an object. Most objects have few members. For up to 32 names, a list is cheaper than a
// map.
type nameSet struct {
	few  [32]string
	n    int                 // the number of names in few
	many map[string]struct{} // the names after the first 32
}

// add adds name and reports whether it is new.
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
