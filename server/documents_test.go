package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// documents holds openapi.yaml and asyncapi.yaml, and a record of the errors, operations and frames that the tests have seen. It
// validates the traffic of the tests: documented checks HTTP, eventLog checks event streams, and frameLog checks WebSockets.
//
// kin-openapi validates openapi.yaml itself and finds the operation for a path. jsonschema validates bodies, headers and frames.
// kin-openapi could do that too, but it compiles a schema at every call, and ignores headers and statuses that are not described.
var documents = loadDocuments()

const (
	openAPIFile  = "file:///openapi.yaml"
	asyncAPIFile = "file:///asyncapi.yaml"
)

type documentSet struct {
	// static
	openAPI *openapi3.T
	router  routers.Router
	parsed  map[string]any        // by file
	frames  map[string]*frameKind // by name in asyncapi.yaml
	seed    maphash.Seed

	passed sync.Map // hashes (uint64) of valid frames; a thousand viewers get the same frame, which is validated once

	mu         sync.Mutex
	compiler   *jsonschema.Compiler          // guarded by mu
	compiled   map[string]*jsonschema.Schema // guarded by mu
	errors     map[string]bool               // guarded by mu; errors seen, such as "404 session_not_found"
	operations map[string]bool               // guarded by mu; operations seen with a status below 400
}

// frameKind is a message of asyncapi.yaml. Its schema is compiled in advance, so that a thousand viewers need no lock.
type frameKind struct {
	schema *jsonschema.Schema // static
	seen   atomic.Bool
}

func loadDocuments() *documentSet {
	d := &documentSet{
		compiler: jsonschema.NewCompiler(), compiled: make(map[string]*jsonschema.Schema), parsed: make(map[string]any),
		seed: maphash.MakeSeed(), errors: make(map[string]bool), operations: make(map[string]bool), frames: make(map[string]*frameKind),
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	for _, file := range []string{openAPIFile, asyncAPIFile} {
		text, err := os.ReadFile("docs/" + strings.TrimPrefix(file, "file:///"))
		must(err)
		text, err = yaml.YAMLToJSON(text)
		must(err)
		d.parsed[file], err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
		must(err)
		must(d.compiler.AddResource(file, d.parsed[file]))
	}
	var err error
	d.openAPI, err = openapi3.NewLoader().LoadFromFile("docs/openapi.yaml")
	must(err)
	d.openAPI.Servers = nil // the servers of the tests have other addresses
	d.router, err = gorillamux.NewRouter(d.openAPI)
	must(err)
	for name, message := range d.members(place{asyncAPIFile, "/components/messages"}) {
		schema, err := d.compiler.Compile(message.child("payload").String())
		must(err)
		d.frames[name] = &frameKind{schema: schema}
	}
	return d
}

func must(err error) {
	if err != nil {
		panic(err) // a document is invalid, so no test can run
	}
}

// escape converts the name of a member to a part of a JSON pointer. unescape does the reverse.
var escape, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")

// place is a position in a document: a file and a JSON pointer.
type place struct{ file, pointer string }

func (p place) String() string { return p.file + "#" + p.pointer }

// child returns the place of a member. Each further name leads one level deeper.
func (p place) child(names ...string) place {
	for _, name := range names {
		p.pointer += "/" + escape.Replace(name)
	}
	return p
}

// at returns the value at a place, or nil if the place does not exist. If the value is a reference outside of a schema, at
// returns the value at the target instead. The second result is the place of the returned value.
func (d *documentSet) at(p place) (any, place) {
	value := d.parsed[p.file]
	for _, part := range strings.Split(p.pointer, "/")[1:] {
		name := unescape.Replace(part)
		switch v := value.(type) {
		case map[string]any:
			value = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				return nil, p
			}
			value = v[i]
		default:
			return nil, p
		}
	}
	if members, ok := value.(map[string]any); ok {
		if ref, ok := members["$ref"].(string); ok && !strings.Contains(p.pointer, "/schema") {
			return d.at(place{p.file, strings.TrimPrefix(ref, "#")})
		}
	}
	return value, p
}

// members returns the places of an object's members, by name.
func (d *documentSet) members(p place) map[string]place {
	value, p := d.at(p)
	object, _ := value.(map[string]any)
	found := make(map[string]place, len(object))
	for name := range object {
		_, found[name] = d.at(p.child(name))
	}
	return found
}

// check validates a value against the schema at a place.
func (d *documentSet) check(schema place, value any) error {
	d.mu.Lock()
	compiled := d.compiled[schema.String()]
	if compiled == nil {
		var err error
		if compiled, err = d.compiler.Compile(schema.String()); err != nil {
			d.mu.Unlock()
			return err
		}
		d.compiled[schema.String()] = compiled
	}
	d.mu.Unlock()
	return compiled.Validate(value)
}

// checkJSON validates JSON against the schema at a place.
func (d *documentSet) checkJSON(schema place, text []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return d.check(schema, value)
}

// checkText validates a header or parameter against the schema at a place. The text may be valid as a string or as JSON, such as
// a number.
func (d *documentSet) checkText(schema place, text string) error {
	err := d.check(schema, text)
	if err == nil || json.Valid([]byte(text)) && d.checkJSON(schema, []byte(text)) == nil {
		return nil
	}
	return err
}

// documented is an HTTP transport that validates every response against openapi.yaml. It validates a request only if the
// response's status is below 400, because some tests send invalid requests on purpose.
type documented struct {
	t    testing.TB
	next *http.Transport
}

func (d documented) CloseIdleConnections() { d.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (d documented) RoundTrip(request *http.Request) (*http.Response, error) {
	var sent []byte
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		if sent, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	response, err := d.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	e := exchange{request: request, response: response, sent: sent}
	switch {
	case response.StatusCode == http.StatusSwitchingProtocols:
		d.check(e)
	case strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream"):
		d.check(e)
		response.Body = &eventLog{t: d.t, ReadCloser: response.Body}
	default:
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		e.received = body
		d.check(e)
	}
	return response, nil
}

func (d documented) check(e exchange) {
	for _, err := range e.check(documents) {
		d.t.Errorf("%s %s with status %d does not match openapi.yaml: %v\n%.1000s",
			e.request.Method, e.request.URL.Path, e.response.StatusCode, err, e.received)
	}
}

// exchange is a request and its response.
type exchange struct {
	request        *http.Request
	response       *http.Response
	sent, received []byte
}

// unmatched maps a status to the name of a response in openapi.yaml. A request that matches no operation gets such a response.
var unmatched = map[string]string{
	"401": "InvalidToken", "404": "NotFound", "405": "MethodNotAllowed", "429": "RateLimitExceeded", "503": "ServiceUnavailable",
}

// check returns an error for each part of the request or response that openapi.yaml does not allow.
func (e exchange) check(d *documentSet) (wrong []error) {
	status := strconv.Itoa(e.response.StatusCode)
	var described place
	route, _, err := d.router.FindRoute(e.request)
	switch {
	case err == nil:
		operation := place{openAPIFile, ""}.child("paths", route.Path, strings.ToLower(route.Method))
		var found bool
		if described, found = d.members(operation.child("responses"))[status]; !found {
			return []error{fmt.Errorf("%s has no response %s", operation, status)}
		}
		if e.response.StatusCode < 400 {
			wrong = e.checkRequest(d, operation, place{openAPIFile, ""}.child("paths", route.Path))
			d.record(d.operations, route.Method+" "+route.Path)
		}
	case unmatched[status] == "":
		return []error{fmt.Errorf("openapi.yaml has no such operation: %w", err)}
	default:
		described = place{openAPIFile, "/components/responses/" + unmatched[status]}
	}
	wrong = append(wrong, e.checkHeaders(d, described)...)
	return append(wrong, e.checkBody(d, described)...)
}

// protocolHeaders are headers of HTTP and WebSocket themselves. openapi.yaml does not describe them.
var protocolHeaders = []string{
	"Content-Type", "Content-Length", "Date", "Connection", "Upgrade", "Transfer-Encoding", "Sec-Websocket-Accept", "Sec-Websocket-Protocol",
}

func (e exchange) checkHeaders(d *documentSet, described place) (wrong []error) {
	headers := d.members(described.child("headers"))
	underV1 := strings.HasPrefix(e.request.URL.Path, "/v1")
	for name, header := range headers {
		value, _ := d.at(header.child("required"))
		values := e.response.Header.Values(name)
		switch {
		case len(values) == 0 && value == true && (underV1 || !strings.HasPrefix(name, "X-RateLimit")):
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		case len(values) > 1 && name != "Vary":
			wrong = append(wrong, fmt.Errorf("the header %s occurs %d times", name, len(values)))
		case len(values) > 0:
			if err := d.checkText(header.child("schema"), values[0]); err != nil {
				wrong = append(wrong, fmt.Errorf("the header %s: %w", name, err))
			}
		}
	}
	for name := range e.response.Header {
		named := func(other string) bool { return http.CanonicalHeaderKey(other) == name }
		if !slices.Contains(protocolHeaders, name) && !slices.ContainsFunc(slices.Collect(maps.Keys(headers)), named) {
			wrong = append(wrong, fmt.Errorf("the header %s is not described", name))
		}
	}
	return wrong
}

func (e exchange) checkBody(d *documentSet, described place) []error {
	content := d.members(described.child("content"))
	if e.request.Method == http.MethodHead || e.response.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	if len(content) == 0 {
		if len(e.received) > 0 {
			return []error{fmt.Errorf("the response has a body, but openapi.yaml describes none for %s", described)}
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(e.response.Header.Get("Content-Type"))
	media, found := content[mediaType]
	if err != nil || !found {
		return []error{fmt.Errorf("openapi.yaml describes no content of the type %[2]q for %[1]s", described, mediaType)}
	}
	if mediaType != "application/json" {
		return nil
	}
	if e.response.StatusCode >= 400 {
		var body struct{ Error struct{ Code string } }
		_ = json.Unmarshal(e.received, &body) // the schema reports an invalid body
		d.record(d.errors, fmt.Sprintf("%d %s", e.response.StatusCode, body.Error.Code))
	}
	if err := d.checkJSON(media.child("schema"), e.received); err != nil {
		return []error{fmt.Errorf("the body: %w", err)}
	}
	return nil
}

// checkRequest validates the parameters and the body of a request that the server accepted.
func (e exchange) checkRequest(d *documentSet, operation, path place) (wrong []error) {
	queries := make(map[string]bool)
	for _, list := range []place{path.child("parameters"), operation.child("parameters")} {
		value, _ := d.at(list)
		parameters, _ := value.([]any)
		for i := range parameters {
			value, p := d.at(list.child(strconv.Itoa(i)))
			parameter := value.(map[string]any)
			name, in := parameter["name"].(string), parameter["in"].(string)
			values := e.request.Header.Values(name)
			switch in {
			case "query":
				queries[name] = true
				values = e.request.URL.Query()[name]
			case "path":
				continue // the server accepted the id; a malformed id gets 404
			}
			if len(values) == 0 && parameter["required"] == true {
				wrong = append(wrong, fmt.Errorf("the %s parameter %s is missing", in, name))
			}
			for _, value := range values {
				if err := d.checkText(p.child("schema"), value); err != nil {
					wrong = append(wrong, fmt.Errorf("the %s parameter %s: %w", in, name, err))
				}
			}
		}
	}
	for name := range e.request.URL.Query() {
		if !queries[name] {
			wrong = append(wrong, fmt.Errorf("the query parameter %s is not described", name))
		}
	}
	value, body := d.at(operation.child("requestBody"))
	if description, _ := value.(map[string]any); len(e.sent) == 0 {
		if description["required"] == true {
			wrong = append(wrong, fmt.Errorf("the request has no body"))
		}
	} else if description != nil { // the server ignores bodies of other operations
		if err := d.checkJSON(body.child("content", "application/json", "schema"), e.sent); err != nil {
			wrong = append(wrong, fmt.Errorf("the request's body: %w", err))
		}
	}
	return wrong
}

// record marks an operation or an error as seen by a test.
func (d *documentSet) record(where map[string]bool, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	where[what] = true
}

// checkFrame validates a frame against a message of asyncapi.yaml. The message's name is dialect followed by the frame's type.
func (d *documentSet) checkFrame(dialect string, frame []byte) error {
	hash := maphash.Bytes(d.seed, frame) + maphash.String(d.seed, dialect)
	if _, passed := d.passed.Load(hash); passed {
		return nil
	}
	if err := d.checkNewFrame(dialect, frame); err != nil {
		return err
	}
	d.passed.Store(hash, nil)
	return nil
}

func (d *documentSet) checkNewFrame(dialect string, frame []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return err
	}
	object, _ := value.(map[string]any)
	name, _ := object["type"].(string)
	name = dialect + name
	kind := d.frames[name]
	if kind == nil {
		return fmt.Errorf("asyncapi.yaml has no frame %q", name)
	}
	kind.seen.Store(true)
	return kind.schema.Validate(value)
}
