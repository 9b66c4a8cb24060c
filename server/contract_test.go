package server_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"parley/auth"
	"parley/server"
)

// The notYet lists exempt parts of openapi.yaml and asyncapi.yaml from the tests. The tests fail if an entry no longer needs the
// exemption, so the lists cannot become stale.
var (
	// notYetRoutes are routes that openapi.yaml describes and the server does not have.
	notYetRoutes = []string{}
	// notYetErrors maps an error that no test produces, such as "404 session_not_found", to the reason.
	notYetErrors = map[string]string{}
	// notYetFrames maps a frame that no test sends or receives to the reason.
	notYetFrames = map[string]string{}
	// pageRoutes are routes of the page's own handler, so gin does not list them.
	pageRoutes = []string{"GET /", "GET /static/{file}"}
)

func TestOpenAPI_Valid(t *testing.T) {
	if err := documents.openAPI.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
}

func TestOpenAPI_MatchesRoutes(t *testing.T) {
	p := start(t, echo)
	mounted, described := make(map[string]bool), make(map[string]bool)
	for _, r := range server.Routes(p.handler) {
		mounted[r.Method+" "+regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")] = true
	}
	for _, path := range documents.openAPI.Paths.InMatchingOrder() {
		for method := range documents.openAPI.Paths.Value(path).Operations() {
			described[method+" "+path] = true
		}
	}
	for r := range mounted {
		if !described[r] {
			t.Errorf("%s is mounted but not described in openapi.yaml", r)
		}
		if slices.Contains(notYetRoutes, r) {
			t.Errorf("%s is mounted: remove it from notYetRoutes", r)
		}
	}
	for r := range described {
		if !mounted[r] && !slices.Contains(notYetRoutes, r) && !slices.Contains(pageRoutes, r) {
			t.Errorf("%s is described in openapi.yaml but not mounted", r)
		}
	}
}

// Every schema and property must have a description, directly or through a reference. Every reference must resolve.
func TestDocuments_SchemasAndProperties_Described(t *testing.T) {
	var walk func(p place, value any, inProperties bool)
	walk = func(p place, value any, inProperties bool) {
		switch v := value.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				file, pointer, _ := strings.Cut(ref, "#")
				target := place{p.file, pointer}
				if file == "./openapi.yaml" {
					target.file = openAPIFile
				}
				if found, _ := documents.at(target); found == nil {
					t.Errorf("%s refers to %s, which does not exist", p, ref)
				}
			}
			for name, member := range v {
				object, isObject := member.(map[string]any)
				// A schema that only narrows a property needs no description: another schema describes the property.
				narrows := object["type"] == nil || strings.Contains(p.pointer, "Of/")
				if inProperties && isObject && !narrows && object["description"] == nil {
					t.Errorf("%s/%s has no description", p, name)
				}
				walk(p.child(name), member, name == "properties" && !inProperties)
			}
		case []any:
			for i, member := range v {
				walk(p.child(strconv.Itoa(i)), member, false)
			}
		}
	}
	for file, document := range documents.parsed {
		walk(place{file, ""}, document, false)
		for name, schema := range documents.members(place{file, "/components/schemas"}) {
			if value, _ := documents.at(schema.child("description")); value == nil {
				if value, _ := documents.at(schema.child("$ref")); value == nil {
					t.Errorf("the schema %s has no description", name)
				}
			}
		}
	}
}

func TestAsyncAPI_Messages_ExamplesValidAndInChannel(t *testing.T) {
	for name, message := range documents.members(place{asyncAPIFile, "/components/messages"}) {
		value, _ := documents.at(message.child("examples"))
		examples, _ := value.([]any)
		for _, example := range examples {
			if err := documents.check(message.child("payload"), example.(map[string]any)["payload"]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if own, _ := documents.at(message.child("name")); own != name {
			t.Errorf("%s has the name %v", name, own)
		}
		channel := "/channels/stream/messages"
		if strings.HasPrefix(name, aiSDK) {
			channel = "/channels/aiSdk/messages"
		}
		if _, found := documents.members(place{asyncAPIFile, channel})[name]; !found {
			t.Errorf("%s is not in its channel", name)
		}
	}
}

// Every operation under /v1 must refuse a request without a key, and a request with a key that lacks the operation's scope.
func TestOpenAPI_ScopesEnforced(t *testing.T) {
	p := start(t, echo)
	scopes := []auth.Scope{auth.ReadSessions, auth.WriteSessions, auth.ReadMessages, auth.WriteMessages, auth.ReadAnalytics}
	ids := strings.NewReplacer("{sessionId}", "session_0123456789abcdef", "{messageId}", "msg_0123456789abcdef", "{keyId}", "key_0123456789abcdef")
	for _, path := range documents.openAPI.Paths.InMatchingOrder() {
		for method, operation := range documents.openAPI.Paths.Value(path).Operations() {
			name := method + " " + path
			if slices.Contains(notYetRoutes, name) || !strings.HasPrefix(path, "/v1/") || path == "/v1/stream" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				needed := (*operation.Security)[0]["key"][0]
				others := slices.DeleteFunc(slices.Clone(scopes), func(s auth.Scope) bool { return string(s) == needed })
				if a := p.call(method, ids.Replace(path), nil, "Authorization", ""); a.status != 401 {
					t.Errorf("without a key: %d %s", a.status, a.raw)
				}
				a := p.call(method, ids.Replace(path), nil, "Authorization", "Bearer "+p.key("without "+name, others...))
				if e, _ := a.body["error"].(map[string]any); a.status != 403 || e["requiredScope"] != needed {
					t.Errorf("with all other scopes: %d %s, want the scope %s", a.status, a.raw, needed)
				}
				if needed == string(auth.Admin) {
					return
				}
				if a := p.call(method, ids.Replace(path), nil, "Authorization", "Bearer "+p.key("with "+name, auth.Scope(needed))); a.status == 403 {
					t.Errorf("with the scope: %d %s", a.status, a.raw)
				}
			})
		}
	}
}

// complete runs the tests. After a successful run of all tests of the package, it calls gaps, and fails if gaps returns a
// message.
type complete struct{ *testing.M }

// Run implements goleak.TestingM.
func (c complete) Run() int {
	code := c.M.Run()
	shared.Kill()
	for _, name := range []string{"run", "skip", "list", "fuzz", "bench"} {
		if f := flag.Lookup("test." + name); f != nil && f.Value.String() != "" {
			return code // not all tests have run
		}
	}
	if f := flag.Lookup("test.fuzzworker"); code != 0 || f != nil && f.Value.String() == "true" {
		return code
	}
	for _, gap := range gaps() {
		fmt.Fprintln(os.Stderr, gap)
		code = 1
	}
	return code
}

// gaps returns a message for each operation, error and frame that openapi.yaml or asyncapi.yaml describes and no test has seen.
// It also returns a message for each stale entry of the notYet lists.
func gaps() (all []string) {
	compare := func(what string, described, seen map[string]bool, notYet map[string]string) {
		for _, one := range slices.Sorted(maps.Keys(described)) {
			if _, listed := notYet[one]; !seen[one] && !listed {
				all = append(all, fmt.Sprintf("openapi.yaml or asyncapi.yaml describes the %s %s, but no test has seen it", what, one))
			}
		}
		for one := range notYet {
			if seen[one] {
				all = append(all, fmt.Sprintf("a test has seen the %s %s: remove it from the notYet list in contract_test.go", what, one))
			}
			if !described[one] {
				all = append(all, fmt.Sprintf("the %s %s is in a notYet list of contract_test.go, but neither in openapi.yaml nor in asyncapi.yaml", what, one))
			}
		}
	}
	later := make(map[string]string)
	for _, r := range notYetRoutes {
		later[r] = "a route"
	}
	operations, frames, framesSeen := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for path, item := range documents.openAPI.Paths.Map() {
		for method := range item.Operations() {
			operations[method+" "+path] = true
		}
	}
	for name, kind := range documents.frames {
		frames[name], framesSeen[name] = true, kind.seen.Load()
	}
	compare("error", describedErrors(), documents.errors, notYetErrors)
	compare("operation", operations, documents.operations, later)
	compare("frame", frames, framesSeen, notYetFrames)
	return all
}

// describedErrors returns the errors that openapi.yaml describes, each as status and code, for example "404 session_not_found".
func describedErrors() map[string]bool {
	found := make(map[string]bool)
	add := func(status string, response place) {
		schema, _ := documents.at(response.child("content", "application/json", "schema"))
		for _, code := range codesOf(schema) {
			found[status+" "+code] = true
		}
	}
	for path, item := range documents.members(place{openAPIFile, "/paths"}) {
		for method := range documents.members(item) {
			operation := place{openAPIFile, ""}.child("paths", path, method)
			for status, response := range documents.members(operation.child("responses")) {
				if status >= "400" {
					add(status, response)
				}
			}
		}
	}
	add("404", place{openAPIFile, "/components/responses/NotFound"})
	add("405", place{openAPIFile, "/components/responses/MethodNotAllowed"})
	return found
}

// codesOf returns the error codes that the schema of an error response allows.
func codesOf(schema any) (codes []string) {
	object, _ := schema.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		target := place{openAPIFile, strings.TrimPrefix(ref, "#")}
		if code, _ := documents.at(target.child("properties", "error", "properties", "code", "const")); code != nil {
			return []string{code.(string)}
		}
	}
	alternatives, _ := object["oneOf"].([]any)
	for _, alternative := range alternatives {
		codes = append(codes, codesOf(alternative)...)
	}
	return codes
}

func TestViewers_CancelledOrInterrupted_GetTerminalFrame(t *testing.T) {
	model := newDirected()
	p := start(t, model)
	session := p.session()
	s := p.dial()
	s.mustSubscribe(session, "")
	for _, ending := range []string{"cancelled", "interrupted"} {
		reply := p.begin(session, "hello")["messageId"]
		s.next("message.created")
		s.next("message.created")
		model.next(t).say("so far")
		s.next("message.delta")
		if ending == "cancelled" {
			s.must(map[string]any{"type": "cancel", "id": "c", "sessionId": session, "messageId": reply})
			// The response and the event may arrive in either order.
			types := []string{s.nextType(t), s.nextType(t)}
			if slices.Sort(types); !slices.Equal(types, []string{"cancelled", "message.cancelled"}) {
				t.Errorf("got %v", types)
			}
			continue
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		p.drain(now)
		if f := s.next("message.interrupted"); f.Message.Content != "so far" {
			t.Errorf("got %+v", f.Message)
		}
	}
}

// nextType returns the type of the next frame.
func (s *socket) nextType(t *testing.T) string {
	t.Helper()
	f, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	return f.Type
}
