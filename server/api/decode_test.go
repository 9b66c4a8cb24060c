package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// decoded has a field of each kind that requests have.
type decoded struct {
	Content   *string         `json:"content"`
	Type      string          `json:"type,omitempty"`
	Streaming *bool           `json:"streaming"`
	Limit     int             `json:"limit"`
	Small     int8            `json:"small"`
	Port      uint16          `json:"port"`
	Ratio     *float64        `json:"ratio"`
	Metadata  json.RawMessage `json:"metadata"`
	Scopes    []string        `json:"scopes"`
	Labels    map[string]int  `json:"labels"`
	Until     *time.Time      `json:"until"`
	Config    *struct {
		MaxTokens *int `json:"maxTokens"`
	} `json:"contextConfig"`
	Plain  bool
	Hidden string `json:"-"`
}

func TestDecode_InvalidBody_Refused(t *testing.T) {
	nested := func(levels int) string {
		return `{"metadata":` + strings.Repeat(`{"a":`, levels-2) + `{}` + strings.Repeat("}", levels-2) + "}"
	}
	names := func(n int) string {
		members := make(map[string]int, n)
		for i := range n {
			members[fmt.Sprint(i)] = i
		}
		body, _ := json.Marshal(map[string]any{"metadata": members})
		return string(body)
	}
	for name, test := range map[string]struct{ body, field, reason string }{
		"an empty body":                    {``, "", "the body is empty"},
		"nothing but space":                {" \n", "", "the body is not valid JSON"},
		"not JSON":                         {`{content: 1}`, "", "the body is not valid JSON"},
		"a truncated body":                 {`{"content":"a"`, "", "the body is not valid JSON"},
		"a trailing comma":                 {`{"content":"a",}`, "", "the body is not valid JSON"},
		"a byte order mark":                {"\ufeff{}", "", "the body is not valid JSON"},
		"a list":                           {`[]`, "", "the body must be a JSON object"},
		"a string":                         {`"a"`, "", "the body must be a JSON object"},
		"null":                             {` null`, "", "the body must be a JSON object"},
		"a second object":                  {`{} {}`, "", "the body must end after its JSON object"},
		"text after the object":            {`{"content":"a"}x`, "", "the body must end after its JSON object"},
		"an unknown field":                 {`{"colour":1}`, "colour", "is not a known field"},
		"a field without a name":           {`{"":1}`, `""`, "is not a known field"},
		"a field that JSON must not set":   {`{"Hidden":"a"}`, "Hidden", "is not a known field"},
		"a field named -":                  {`{"-":"a"}`, "-", "is not a known field"},
		"an unknown field of an object":    {`{"contextConfig":{"max":1}}`, "contextConfig.max", "is not a known field"},
		"a field in other case":            {`{"Content":"a"}`, "Content", "is not a known field: it is spelled content"},
		"a field with a Unicode variant":   {`{"\u017fcopes":["a"]}`, "ſcopes", "is not a known field: it is spelled scopes"},
		"a nested field in other case":     {`{"contextConfig":{"maxtokens":1}}`, "contextConfig.maxtokens", "is not a known field: it is spelled maxTokens"},
		"a field twice":                    {`{"content":"a","content":"a"}`, "content", "appears more than once"},
		"a field twice, once escaped":      {`{"content":"a","c\u006fntent":"a"}`, "content", "appears more than once"},
		"a name twice in metadata":         {`{"metadata":{"a":1,"b":[{"c":1,"c":1}]}}`, "metadata.b.0.c", "appears more than once"},
		"a name twice in a map":            {`{"labels":{"a":1,"\u0061":1}}`, "labels.a", "appears more than once"},
		"a string for a number":            {`{"limit":"1"}`, "limit", "must be a whole number"},
		"a number for a string":            {`{"content":1}`, "content", "must be a string"},
		"a number for a boolean":           {`{"streaming":1}`, "streaming", "must be true or false"},
		"a string for a boolean":           {`{"Plain":"true"}`, "Plain", "must be true or false"},
		"a string for a fraction":          {`{"ratio":"1"}`, "ratio", "must be a number"},
		"a list for an object":             {`{"contextConfig":[]}`, "contextConfig", "must be an object"},
		"an object for a string":           {`{"type":{}}`, "type", "must be a string"},
		"a string for a list":              {`{"scopes":"a"}`, "scopes", "must be a list"},
		"a number in a list of strings":    {`{"scopes":["a",1]}`, "scopes.1", "must be a string"},
		"a fraction in a map of numbers":   {`{"labels":{"a":1.5}}`, "labels.a", "must be a whole number, without a fraction or an exponent"},
		"a fraction for a whole number":    {`{"limit":1.5}`, "limit", "must be a whole number, without a fraction or an exponent"},
		"a whole number with a point":      {`{"contextConfig":{"maxTokens":4096.0}}`, "contextConfig.maxTokens", "must be a whole number, without a fraction or an exponent"},
		"a whole number with an exponent":  {`{"limit":1e3}`, "limit", "must be a whole number, without a fraction or an exponent"},
		"a whole number that is too large": {`{"limit":9223372036854775808}`, "limit", "is out of range"},
		"a small number that is too large": {`{"small":128}`, "small", "is out of range"},
		"a negative port":                  {`{"port":-1}`, "port", "is out of range"},
		"a fraction that is too large":     {`{"ratio":1e999}`, "ratio", "is out of range"},
		"a number too large in metadata":   {`{"metadata":{"a":[-1e999]}}`, "metadata.a.0", "is out of range"},
		"null for a string":                {`{"content":null}`, "content", "must be a string, not null"},
		"null for a boolean":               {`{"streaming":null}`, "streaming", "must be true or false, not null"},
		"null for a whole number":          {`{"limit":null}`, "limit", "must be a whole number, not null"},
		"null for an object":               {`{"contextConfig":null}`, "contextConfig", "must be an object, not null"},
		"null for a list":                  {`{"scopes":null}`, "scopes", "must be a list, not null"},
		"null for metadata":                {`{"metadata":null}`, "metadata", "must not be null"},
		"null for a time":                  {`{"until":null}`, "until", "must not be null"},
		"an invalid time":                  {`{"until":"tomorrow"}`, "until", "is not valid"},
		"a raw NUL":                        {"{\"content\":\"\x00\"}", "", "the body is not valid JSON"},
		"an escaped NUL":                   {`{"content":"a\u0000"}`, "content", "must not contain NUL"},
		"an escaped NUL in metadata":       {`{"metadata":{"a":["\u0000"]}}`, "metadata.a.0", "must not contain NUL"},
		"an escaped NUL in a name":         {`{"metadata":{"a\u0000":1}}`, "metadata", "the name of a field must not contain NUL"},
		"a lone high surrogate":            {`{"content":"\ud800"}`, "content", "has half of a surrogate pair"},
		"a high surrogate at the end":      {`{"content":"a\uDBFF"}`, "content", "has half of a surrogate pair"},
		"a high surrogate and a letter":    {`{"content":"\ud83d\u0041"}`, "content", "has half of a surrogate pair"},
		"a high surrogate and no escape":   {`{"content":"\ud83dxudc4d"}`, "content", "has half of a surrogate pair"},
		"two high surrogates":              {`{"content":"\ud83d\ud83d\udc4d"}`, "content", "has half of a surrogate pair"},
		"a lone low surrogate":             {`{"content":"\udc4d"}`, "content", "has half of a surrogate pair"},
		"a surrogate in a name":            {`{"\ud800":1}`, "", "the name of a field has half of a surrogate pair"},
		"invalid UTF-8":                    {"{\"content\":\"a\xff\"}", "content", "is not valid UTF-8"},
		"a surrogate in UTF-8":             {"{\"content\":\"\xed\xa0\x80\"}", "content", "is not valid UTF-8"},
		"overlong UTF-8":                   {"{\"metadata\":{\"a\":\"\xc0\x80\"}}", "metadata.a", "is not valid UTF-8"},
		"invalid UTF-8 in a name":          {"{\"metadata\":{\"\xff\":1}}", "metadata", "the name of a field is not valid UTF-8"},
		"65 levels":                        {nested(65), "metadata" + strings.Repeat(".a", 63), "is nested too deeply: at most 64 levels"},
		"4,097 names":                      {names(4097), "metadata", "has too many entries: at most 4,096"},
		"4,097 scopes":                     {`{"scopes":["a"` + strings.Repeat(`,"a"`, 4096) + `]}`, "scopes", "has too many entries: at most 4,096"},
		"a long name":                      {`{"` + strings.Repeat("é", 100) + `":1}`, strings.Repeat("é", 32) + "…", "is not a known field"},
	} {
		t.Run(name, func(t *testing.T) {
			into := decoded{Limit: 7}
			e := decodeStrict([]byte(test.body), &into, false)
			if e == nil || e.Field != test.field || e.Reason != test.reason {
				t.Errorf("%.100q: got %+v, want %q %q", test.body, e, test.field, test.reason)
			}
			if !reflect.DeepEqual(into, decoded{Limit: 7}) {
				t.Errorf("the refused body changed the struct to %+v", into)
			}
		})
	}
}

func TestDecode_ValidBody_Accepted(t *testing.T) {
	levels := `{"metadata":` + strings.Repeat(`[`, 63) + strings.Repeat("]", 63) + "}"
	for _, body := range []string{
		`{}`, " {\n}\t\r\n", `{"content":""}`, `{"content":"👍 \ud83d\udc4d \uD83D\uDC4D \\u0000 \\ud800 \" \/ \n"}`, `{"Plain":true,"streaming":false}`,
		`{"limit":-0,"small":-128,"port":65535,"ratio":-1.5e-3}`, `{"limit":9223372036854775807}`,
		`{"metadata":{"a":null,"b":[1,{"a":2}],"B":1e300,"":0}}`, `{"metadata":"free in form"}`, `{"metadata":1}`,
		`{"scopes":[]}`, `{"scopes":["a","a"]}`, `{"labels":{"a":1,"A":2}}`, `{"until":"2026-11-21T12:00:00Z"}`,
		`{"contextConfig":{}}`, `{ "contextConfig" : { "maxTokens" : 4096 } , "type" : "a" }`, `{"c\u006fntent":"a"}`, levels,
	} {
		checkAccepted(t, []byte(body), true)
	}
}

// checkAccepted compares the strict decoder with encoding/json: both must decode an accepted body to the same value. The value
// must stay the same after it was encoded and decoded again. If must is true, the decoder must accept the body.
func checkAccepted(t *testing.T, body []byte, must bool) {
	t.Helper()
	var strict, plain, again decoded
	if e := decodeStrict(body, &strict, false); e != nil {
		if must {
			t.Errorf("%q is refused: %+v", body, e)
		}
		if e.Reason == "" || e.Reason == "the body cannot be decoded" || len(e.Field) > maxDepth*80 {
			t.Errorf("%q: the error is incomplete: %+v", body, e)
		}
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&plain); err != nil || !reflect.DeepEqual(strict, plain) {
		t.Errorf("%q: got %+v, encoding/json has %+v, %v", body, strict, plain, err)
	}
	var free map[string]any
	if err := json.Unmarshal(body, &free); err != nil {
		t.Errorf("%q: encoding/json cannot decode it into a map: %v", body, err)
	}
	encoded, err := json.Marshal(present(strict))
	if err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if e := decodeStrict(encoded, &again, false); e != nil {
		t.Errorf("%q: its value, encoded as %q, is refused: %+v", body, encoded, e)
	}
	compact(&strict)
	if !reflect.DeepEqual(strict, again) {
		t.Errorf("%q: the value %+v became %+v after encoding and decoding", body, strict, again)
	}
}

// present returns the fields of v that have a value. Fields without a value would be encoded as null, which the decoder
// refuses.
func present(v decoded) map[string]any {
	fields := make(map[string]any)
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if name == "" {
			name = value.Type().Field(i).Name
		}
		if field := value.Field(i); name != "-" && (field.Kind() == reflect.Slice && !field.IsNil() || !field.IsZero()) {
			fields[name] = field.Interface()
		}
	}
	if v.Config != nil && v.Config.MaxTokens == nil {
		fields["contextConfig"] = struct{}{}
	}
	return fields
}

// compact removes white space from metadata, as json.Marshal does.
func compact(v *decoded) {
	if v.Metadata != nil {
		v.Metadata, _ = json.Marshal(v.Metadata)
	}
}

// processorTime returns the processor time that this process has used, garbage collection included.
func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestDecode_LinearTime compares two costs: to decode a small body sixteen times, and a body of sixteen times the size once.
// The costs are equal if the time is linear. If it is quadratic, the large body costs sixteen times as much.
func TestDecode_LinearTime(t *testing.T) {
	const small, factor = 8 << 10, 16
	for name, build := range slowBodies() {
		checkCost(t, name, []byte(build(small)), factor, []byte(build(small*factor)))
	}
}

// TestDecode_ManyNames_LinearTime compares objects of 64 names with objects of 4,096 names, the maximum. If the decoder
// compared each name with all other names, the large objects would cost 64 times as much.
func TestDecode_ManyNames_LinearTime(t *testing.T) {
	few := []byte(`{"metadata":[` + strings.Repeat(objectOf(64)+",", 64) + `0]}`)
	many := []byte(`{"metadata":[` + objectOf(maxMembers) + `,0]}`)
	checkCost(t, "names", few, 1, many)
}

// checkCost checks that decoding large once costs at most five times as much as decoding small the given number of times. The
// bound leaves room for caches and the garbage collector. The cost is the processor time of the best of several rounds, so
// that a busy machine does not fail the test.
func checkCost(t *testing.T, name string, small []byte, times int, large []byte) {
	t.Helper()
	const bound, rounds = 5, 20
	used := func(body []byte, times int) time.Duration {
		start := processorTime(t)
		for range times {
			_ = decodeStrict(body, &decoded{}, false)
		}
		return processorTime(t) - start
	}
	bestSmall, bestLarge := time.Hour, time.Hour
	for round := 0; round < rounds && (round < 2 || bestLarge > bound*bestSmall); round++ {
		bestSmall = min(bestSmall, used(small, times))
		bestLarge = min(bestLarge, used(large, 1))
	}
	if bestLarge > bound*bestSmall {
		t.Errorf("%s: %d bytes cost %v, but %d times %d bytes cost %v", name, len(large), bestLarge, times, len(small), bestSmall)
	}
	t.Logf("%-20s %8v %8v", name, bestSmall, bestLarge)
}

func objectOf(members int) string {
	var b strings.Builder
	b.WriteString(`{"":0`)
	for i := range members - 1 {
		fmt.Fprintf(&b, `,"%x":0`, i)
	}
	return b.String() + "}"
}

// slowBodies returns functions that build a body of about size bytes. Each body is slow to decode, for a different reason.
func slowBodies() map[string]func(size int) string {
	many := func(size int, open, close string, piece func(i int) string) string {
		var b strings.Builder
		b.WriteString(open)
		for i := 0; b.Len() < size; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(piece(i))
		}
		return b.String() + close
	}
	repeated := func(open, close, piece string) func(int) string {
		return func(size int) string { return many(size, open, close, func(int) string { return piece }) }
	}
	numbered := func(piece func(i int) string) func(int) string {
		return func(size int) string { return many(size, `{"metadata":{`, `}}`, piece) }
	}
	return map[string]func(int) string{
		"short names":         numbered(func(i int) string { return fmt.Sprintf(`"%x":0`, i) }),
		"escaped names":       numbered(func(i int) string { return fmt.Sprintf(`"\u%04x\u%04x":0`, 1+i%0x7ff, 1+i/0x7ff) }),
		"long names":          numbered(func(i int) string { return fmt.Sprintf(`"%s%d":0`, strings.Repeat("a", 1000), i) }),
		"empty objects":       repeated(`{"metadata":[`, `]}`, `{}`),
		"objects of one name": repeated(`{"metadata":[`, `]}`, `{"a":1}`),
		"objects of 17":       repeated(`{"metadata":[`, `]}`, objectOf(17)),
		"objects of 40":       repeated(`{"metadata":[`, `]}`, objectOf(40)),
		"one large object":    func(size int) string { return `{"metadata":` + objectOf(min(size/9, maxMembers)) + `}` },
		"digits":              repeated(`{"metadata":[`, `]}`, "1"),
		"fractions":           repeated(`{"metadata":[`, `]}`, "0.6046602879796196"),
		"one long number":     func(size int) string { return `{"metadata":0.` + strings.Repeat("1", size) + `}` },
		"an unknown name":     func(size int) string { return `{"` + strings.Repeat("a", size) + `":1}` },
		"one long string":     func(size int) string { return `{"content":"` + strings.Repeat("é", size/2) + `"}` },
		"escapes":             func(size int) string { return `{"content":"` + strings.Repeat(`\u00e9`, size/6) + `"}` },
		"pairs":               func(size int) string { return `{"content":"` + strings.Repeat(`\ud83d\udc4d`, size/12) + `"}` },
		"space":               func(size int) string { return `{` + strings.Repeat(" ", size) + `}` },
		"deep": func(size int) string {
			return `{"metadata":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + `}`
		},
		"deep and unclosed": func(size int) string { return `{"metadata":` + strings.Repeat("[", size) },
		"a long list at depth 62": func(size int) string {
			return `{"metadata":` + strings.Repeat(`{"a":`, 60) + many(size, "[", "]", func(int) string { return `"a"` }) + strings.Repeat("}", 61)
		},
		"a list of scopes":      repeated(`{"scopes":[`, `]}`, `"a"`),
		"an unknown last field": repeated(`{"scopes":[`, `],"Scopes":[]}`, `"a"`),
	}
}

func FuzzStrictDecoding(f *testing.F) {
	for _, body := range []string{
		`{"content":"a\ud83d\udc4d","limit":1,"metadata":{"a":[1,null,{"b":"\u0000"}]},"scopes":["a"],"labels":{"a":1}}`,
		`{"contextConfig":{"maxTokens":4096.0},"ratio":1e-7,"until":"2026-11-21T12:00:00Z","Plain":true}`,
		`{"Content":null}{`, `{"port":1,"port":2,"small":-129}`, `{"content":"\ud800"}`, `{"content":"\ud83d\ud83d"}`, `{"c\u006fntent":"\udc4d"}`,
		`{"metadata":{"a":1,"\u0061":[{"b":{"b":[]}}]}}`, `{"labels":{"a":1,"A":-0},"limit":1e3}`, `{"metadata":[1e999,1.5,true,false,null,"\\u0000"]}`,
		`{"contextConfig":{"maxtokens":1}}`, `{"until":"tomorrow"}`, `{"ratio":"1","Plain":1}`, `{"scopes":["a",{"b":null}]}`, "{\"content\":\"\xed\xa0\x80\"}",
		`{"metadata":{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":{"i":1,"i":2}}}}}}}}}}}`, `{"\u0000":1}`, `{"limit":9223372036854775808}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		checkAccepted(t, body, false)
		if decodeStrict(body, &decoded{}, false) == nil && hasDuplicates(t, body) {
			t.Errorf("%q is accepted, although a name appears twice", body)
		}
	})
}

// hasDuplicates reports whether a name appears twice in an object. Unlike the decoder, it uses the tokens of encoding/json.
func hasDuplicates(t *testing.T, body []byte) bool {
	type level struct {
		names map[string]bool // nil in a list
		value bool            // the next token is a value, not a name
	}
	var levels []level
	decoder := json.NewDecoder(bytes.NewReader(body))
	for decoder.More() || len(levels) > 0 {
		token, err := decoder.Token()
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		top := len(levels) - 1
		if name, ok := token.(string); ok && top >= 0 && levels[top].names != nil && !levels[top].value {
			if levels[top].names[name] {
				return true
			}
			levels[top].names[name], levels[top].value = true, true
			continue
		}
		if top >= 0 {
			levels[top].value = false
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}})
		case json.Delim('['):
			levels = append(levels, level{})
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:top]
		}
	}
	return false
}

func BenchmarkStrictDecoding(b *testing.B) {
	for name, body := range map[string]string{
		"a-message": `{"content":"` + strings.Repeat("How are you today? ", 5) + `","streaming":true,"metadata":{"source":"web","n":1}}`,
		"1-MiB":     `{"metadata":[` + strings.Repeat(`{"name":"value","list":[1,2,3.5],"text":"ordinary words"},`, 18_000) + `0]}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if e := decodeStrict([]byte(body), &decoded{}, false); e != nil {
					b.Fatal(e)
				}
			}
		})
	}
}
