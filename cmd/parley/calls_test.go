package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// trickyText contains characters that shell, JavaScript, Go or JSON must escape.
const trickyText = "it's \"$KEY\" `id` $(id) \\n %s !\n\t{a,b} </script> \ufeff\u2028 日本 👩‍🚀"

// trafficEntry is a request or frame in the format that traffic.js records.
type trafficEntry struct {
	Out    bool   `json:"out"`
	Method string `json:"method,omitempty"` // "" for a WebSocket frame
	Path   string `json:"path,omitempty"`   // "" for a WebSocket frame
	Data   string `json:"data"`
}

func rest(method, path string, body any) trafficEntry {
	r := trafficEntry{Out: true, Method: method, Path: "/v1" + path}
	if body != nil {
		r.Data = encode(body)
	}
	return r
}

func sentFrame(frame map[string]any) trafficEntry {
	return trafficEntry{Out: true, Data: encode(frame)}
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // impossible: the tests encode only maps, strings, numbers and structs of these
	}
	return string(text)
}

// fixture holds a session for one snippet. The session has a completed turn and, if the snippet needs one, a streaming reply.
type fixture struct {
	p                        *process
	session, message, cursor string
}

// snippetCase is a kind of traffic entry and the expected result of its snippet.
type snippetCase struct {
	live   bool // the snippet needs a streaming reply
	entry  func(s fixture) trafficEntry
	prints func(s fixture) string // text that the output must contain; nil for no check
	effect func(s fixture) error  // checks the effect on the server; nil for no check
}

var (
	printsSession = func(s fixture) string { return s.session }
	printsMessage = func(s fixture) string { return s.message }
)

// snippetCases has every kind of entry that the inspector offers a snippet for.
var snippetCases = map[string]snippetCase{
	"create a session": {
		entry: func(s fixture) trafficEntry {
			return rest("POST", "/sessions", map[string]any{
				"userId": "user_0123456789abcdef", "metadata": map[string]any{"title": trickyText + s.session, "__proto__": map[string]any{"a": 1}},
			})
		},
		prints: func(fixture) string { return "session_" },
		effect: func(s fixture) error {
			for _, found := range s.p.must("GET", "/v1/sessions?limit=100", nil)["data"].([]any) {
				made, _ := found.(map[string]any)["metadata"].(map[string]any)
				if made["title"] == trickyText+s.session && made["__proto__"] != nil {
					return nil
				}
			}
			return fmt.Errorf("the session was not created")
		},
	},
	"list the sessions": {
		entry:  func(fixture) trafficEntry { return rest("GET", "/sessions?limit=2", nil) },
		prints: func(fixture) string { return "pagination" },
	},
	"get a session": {
		entry: func(s fixture) trafficEntry { return rest("GET", "/sessions/"+s.session, nil) }, prints: printsSession,
	},
	"delete a session": {
		entry: func(s fixture) trafficEntry { return rest("DELETE", "/sessions/"+s.session, nil) }, prints: printsSession,
		effect: func(s fixture) error { return s.expectStatus(404, "/v1/sessions/"+s.session) },
	},
	"read the history": {
		entry: func(s fixture) trafficEntry {
			return rest("GET", "/sessions/"+s.session+"/messages?limit=50&order=desc", nil)
		}, prints: printsMessage,
	},
	"clear the history": {
		entry: func(s fixture) trafficEntry { return rest("DELETE", "/sessions/"+s.session+"/messages", nil) }, prints: printsSession,
		effect: func(s fixture) error { return s.expectStatus(404, "/v1/sessions/"+s.session+"/messages/"+s.message) },
	},
	"get a message": {
		entry: func(s fixture) trafficEntry { return rest("GET", "/sessions/"+s.session+"/messages/"+s.message, nil) }, prints: printsMessage,
	},
	"cancel by REST": {
		live: true,
		entry: func(s fixture) trafficEntry {
			return rest("POST", "/sessions/"+s.session+"/messages/"+s.message+"/cancel", nil)
		},
		effect: fixture.cancelled,
	},
	"cancel on the socket": {
		live: true,
		entry: func(s fixture) trafficEntry {
			return sentFrame(map[string]any{"type": "cancel", "id": "7", "sessionId": s.session, "messageId": s.message})
		},
		effect: fixture.cancelled,
	},
	"send by REST": {
		entry: func(s fixture) trafficEntry {
			return rest("POST", "/sessions/"+s.session+"/messages", map[string]any{"content": trickyText, "streaming": false})
		},
		prints: func(fixture) string { return words(3) },
		effect: fixture.sentTricky,
	},
	"send on the socket": {
		entry: func(s fixture) trafficEntry {
			return sentFrame(map[string]any{"type": "send", "id": "3", "sessionId": s.session, "content": trickyText, "idempotencyKey": "once"})
		},
		prints: func(fixture) string { return words(3) },
		effect: fixture.sentTricky,
	},
	"send with every field": {
		entry: func(s fixture) trafficEntry {
			return sentFrame(map[string]any{
				"type": "send", "id": "3", "sessionId": s.session, "content": trickyText, "role": "user", "onBusy": "enqueue",
				"metadata": map[string]any{"why": trickyText}, "idempotencyKey": "once",
			})
		},
		prints: func(fixture) string { return words(3) },
		effect: fixture.sentTricky,
	},
	"get the usage": {
		entry:  func(fixture) trafficEntry { return rest("GET", "/analytics/usage", nil) },
		prints: func(fixture) string { return "billingPeriod" },
	},
	"preview the context": {
		entry: func(s fixture) trafficEntry {
			return rest("POST", "/sessions/"+s.session+"/context", map[string]any{"content": trickyText})
		},
		prints: func(fixture) string { return "maxTokens" },
	},
	"create a ticket": {
		entry:  func(fixture) trafficEntry { return rest("POST", "/stream/tickets", map[string]any{}) },
		prints: func(fixture) string { return "expiresAt" },
	},
}

// expectStatus returns an error unless GET path returns the status.
func (s fixture) expectStatus(status int, path string) error {
	if got, _, err := s.p.call("GET", path, nil); err != nil || got != status {
		return fmt.Errorf("GET %s: %d %v", path, got, err)
	}
	return nil
}

// sentTricky returns an error if a user message among the two newest messages is not trickyText.
func (s fixture) sentTricky() error {
	for _, found := range s.p.must("GET", "/v1/sessions/"+s.session+"/messages?limit=2", nil)["data"].([]any) {
		if found := found.(map[string]any); found["role"] == "user" && found["content"] != trickyText {
			return fmt.Errorf("the message is %q", found["content"])
		}
	}
	return nil
}

// cancelled returns an error unless the reply was cancelled.
func (s fixture) cancelled() error {
	if status, _ := newestReply(s.p, s.session); status != "cancelled" {
		return fmt.Errorf("the reply is %s", status)
	}
	return nil
}

// newFixture creates a session with a completed reply of two words. If live is true, it also begins a reply of 60 words. The
// model pauses each reply after as many words as the constant held says, so the long reply keeps streaming.
func newFixture(p *process, model *wordsModel, live bool) fixture {
	session := p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
	model.allow(held)
	path := "/v1/sessions/" + session + "/messages"
	reply := p.must("POST", path, map[string]any{"content": "say 2"})
	cursor := p.must("GET", path, nil)["stream"].(map[string]any)["cursor"].(string)
	if live {
		reply = p.must("POST", path, map[string]any{"content": "say 60", "streaming": true})
	}
	return fixture{p, session, reply["messageId"].(string), cursor}
}

// snippetRun is one snippet in one language, its session, and its expected result.
type snippetRun struct {
	fixture
	snippetCase
	kind, language, text string
}

// highLimits raises the rate limits, because the tests send requests without pauses.
const highLimits = `PARLEY_TIERS={"pro":{"requestsPerMinute":10000,"framesPerMinute":1000000,"tokensPerMinute":10000000}}`

// The test runs every snippet of the inspector against a real server. curl runs in a shell, JavaScript runs in Node with the
// client.js of the server, and Go runs in its own module.
func TestSnippets_Run_ExpectedOutputAndEffect(t *testing.T) {
	t.Parallel()
	needs(t, "node", "curl", "go", "sh")
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), append(model.env(), highLimits)...)
	languages := []string{"curl", "JavaScript", "Go"}
	var runs []*snippetRun
	var entries []trafficEntry
	for kind, snippetCase := range snippetCases {
		for _, language := range languages {
			s := newFixture(p, model, snippetCase.live)
			runs = append(runs, &snippetRun{fixture: s, snippetCase: snippetCase, kind: kind, language: language})
			entries = append(entries, snippetCase.entry(s))
		}
	}
	for i, calls := range generateSnippets(t, p.url+"/v1", entries) {
		for _, call := range calls {
			if call.Name == runs[i].language {
				runs[i].text = call.Text
			}
		}
	}
	s := newWorkspace(t, p)
	s.build(runs)
	for i, run := range runs {
		t.Run(run.language+" "+run.kind, func(t *testing.T) {
			output, err := s.command(i, run).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, output, run.text)
			}
			if run.prints != nil && !strings.Contains(string(output), run.prints(run.fixture)) {
				t.Errorf("the output lacks %q:\n%s\nThe snippet:\n%s", run.prints(run.fixture), output, run.text)
			}
			if run.effect != nil {
				if err := run.effect(run.fixture); err != nil {
					t.Errorf("%v\n%s\n%s", err, output, run.text)
				}
			}
		})
	}
}

// The snippets of a subscribe frame run until the session is deleted, so the test deletes it.
func TestSnippets_Subscribe_EndWhenSessionIsDeleted(t *testing.T) {
	t.Parallel()
	needs(t, "node", "curl", "go", "sh")
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), append(model.env(), highLimits)...)
	var runs []*snippetRun
	var entries []trafficEntry
	for _, after := range []bool{true, false} {
		for range 2 {
			s := newFixture(p, model, false)
			frame := map[string]any{"type": "subscribe", "id": "1", "sessionId": s.session}
			if after {
				frame["after"] = s.cursor
			}
			entries = append(entries, sentFrame(frame))
			runs = append(runs, &snippetRun{fixture: s, kind: map[bool]string{true: "subscribe after a cursor", false: "subscribe without a cursor"}[after]})
		}
	}
	for i, calls := range generateSnippets(t, p.url+"/v1", entries) {
		which := calls[1+i%2]
		runs[i].language, runs[i].text = which.Name, which.Text
		if i == 0 && (!strings.HasPrefix(calls[0].Text, "# ") || !strings.Contains(calls[0].Text, "/messages?order=asc")) {
			t.Errorf("the curl snippet is\n%s", calls[0].Text)
		}
	}
	s := newWorkspace(t, p)
	s.build(runs)
	for i, run := range runs {
		t.Run(run.language+" "+run.kind, func(t *testing.T) {
			process := start(t, s.command(i, run))
			for n := 1; !strings.Contains(process.out.String(), word(0)); n++ { // repeated: without a cursor, the snippet shows only replies that begin after it subscribes
				p.must("POST", "/v1/sessions/"+run.session+"/messages", map[string]any{"content": fmt.Sprintf("say %d", min(n, held))})
			}
			process.out.await(func(text string) bool { return strings.Contains(text, word(0)) }, process.exited)
			p.must("DELETE", "/v1/sessions/"+run.session, nil)
			if code := process.wait().ExitCode(); code != 0 || !strings.Contains(process.out.String(), "deleted") {
				t.Errorf("exit code %d\n%s%s\n%s", code, process.out, process.errs, run.text)
			}
		})
	}
}

// snippet is a snippet that snippets.js generates. Name is its language.
type snippet struct{ Name, Text string }

// generateSnippets runs snippets.js in Node. It returns the snippets of each entry.
func generateSnippets(t *testing.T, base string, entries []trafficEntry) (calls [][]snippet) {
	t.Helper()
	command := exec.Command("node", "../../web/testdata/snippets.mjs")
	command.Stdin = strings.NewReader(encode(map[string]any{"base": base, "entries": entries}))
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err == nil {
		err = json.Unmarshal(output, &calls)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return calls
}

// workspace is a folder in which snippets are built and run.
type workspace struct {
	t      *testing.T
	p      *process
	folder string
}

func newWorkspace(t *testing.T, p *process) *workspace { return &workspace{t, p, t.TempDir()} }

func (s *workspace) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.folder, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *workspace) must(command *exec.Cmd) []byte {
	s.t.Helper()
	command.Dir = s.folder
	output, err := command.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", command.Args, err, output)
	}
	return output
}

var (
	downloadCommand = regexp.MustCompile(`(?m)^// (curl -O '[^']*')`)
	moduleLine      = regexp.MustCompile(`(?m)^module .*$`)
)

// build writes the snippets to files. The Go snippets share a module that replaces parley by this checkout. build vets,
// format-checks and compiles the Go snippets. The JavaScript snippets need client.js, which build downloads with the curl command
// in their first comment.
func (s *workspace) build(runs []*snippetRun) {
	s.t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		s.t.Fatal(err)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		s.t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		s.t.Fatal(err)
	}
	moduleHead := fmt.Sprintf("module calls\n\nrequire parley v0.0.0\n\nreplace parley => %s\n", root)
	s.write("go.mod", moduleLine.ReplaceAllLiteralString(string(module), moduleHead))
	s.write("go.sum", string(sums))
	fetched := false
	for i, run := range runs {
		switch run.language {
		case "curl":
			s.write(s.name(i)+".sh", run.text)
		case "JavaScript":
			s.write(s.name(i)+".mjs", run.text)
			if found := downloadCommand.FindStringSubmatch(run.text); found != nil && !fetched {
				s.must(exec.Command("sh", "-c", found[1]+" -sS"))
				s.write("package.json", `{"type":"module"}`)
				fetched = true
			}
		case "Go":
			s.write(filepath.Join(s.name(i), "main.go"), run.text)
		}
	}
	s.must(exec.Command("go", "vet", "./..."))
	s.must(exec.Command("go", "build", "-o", "bin/", "./..."))
	if unformatted := bytes.TrimSpace(s.must(exec.Command("gofmt", "-l", "."))); len(unformatted) > 0 {
		s.t.Errorf("not formatted by gofmt: %s", unformatted)
	}
}

func (s *workspace) name(i int) string { return "run" + strconv.Itoa(i) }

// command returns the command that runs snippet i. Its environment has the API key as $KEY.
func (s *workspace) command(i int, run *snippetRun) *exec.Cmd {
	command := map[string]*exec.Cmd{
		"curl":       exec.Command("sh", s.name(i)+".sh"),
		"JavaScript": exec.Command("node", "--experimental-websocket", "--no-warnings", s.name(i)+".mjs"),
		"Go":         exec.Command(filepath.Join(s.folder, "bin", s.name(i))),
	}[run.language]
	command.Dir = s.folder
	command.Env = append(os.Environ(), "KEY="+s.p.key)
	return command
}
