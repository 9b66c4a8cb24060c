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

// tricky is a message with characters that some language must escape.
const tricky = "it's \"$KEY\" `id` $(id) \\n %s !\n\t{a,b} </script> \ufeff\u2028 日本 👩‍🚀"

// recorded is an entry of traffic.js.
type recorded struct {
	Out    bool   `json:"out"`
	Method string `json:"method,omitempty"` // of a REST call
	Path   string `json:"path,omitempty"`
	Data   string `json:"data"`
}

func rest(method, path string, body any) recorded {
	r := recorded{Out: true, Method: method, Path: "/v1" + path}
	if body != nil {
		r.Data = encode(body)
	}
	return r
}

func sentFrame(frame map[string]any) recorded { return recorded{Out: true, Data: encode(frame)} }

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it is written below
	}
	return string(text)
}

// setting is a session with one turn for one snippet to run in, and with a streaming reply if the snippet needs one.
type setting struct {
	p                        *process
	session, message, cursor string
}

// performed is a kind of entry, and the expected result of running its snippet.
type performed struct {
	live   bool
	entry  func(s setting) recorded
	prints func(s setting) string // expected in the output; nil if nothing is certain
	so     func(s setting) error  // checks the effect on the server; nil if there is none
}

var (
	printsSession = func(s setting) string { return s.session }
	printsMessage = func(s setting) string { return s.message }
)

// performances has every kind of entry that the page creates or may create.
var performances = map[string]performed{
	"create a session": {
		entry: func(s setting) recorded {
			return rest("POST", "/sessions", map[string]any{
				"userId": "user_0123456789abcdef", "metadata": map[string]any{"title": tricky + s.session, "__proto__": map[string]any{"a": 1}},
			})
		},
		prints: func(setting) string { return "session_" },
		so: func(s setting) error {
			for _, found := range s.p.must("GET", "/v1/sessions?limit=100", nil)["data"].([]any) {
				made, _ := found.(map[string]any)["metadata"].(map[string]any)
				if made["title"] == tricky+s.session && made["__proto__"] != nil {
					return nil
				}
			}
			return fmt.Errorf("the session was not created")
		},
	},
	"list the sessions": {
		entry:  func(setting) recorded { return rest("GET", "/sessions?limit=2", nil) },
		prints: func(setting) string { return "pagination" },
	},
	"look at a session": {
		entry: func(s setting) recorded { return rest("GET", "/sessions/"+s.session, nil) }, prints: printsSession,
	},
	"delete a session": {
		entry: func(s setting) recorded { return rest("DELETE", "/sessions/"+s.session, nil) }, prints: printsSession,
		so: func(s setting) error { return s.answers(404, "/v1/sessions/"+s.session) },
	},
	"read the history": {
		entry: func(s setting) recorded {
			return rest("GET", "/sessions/"+s.session+"/messages?limit=50&order=desc", nil)
		}, prints: printsMessage,
	},
	"clear the history": {
		entry: func(s setting) recorded { return rest("DELETE", "/sessions/"+s.session+"/messages", nil) }, prints: printsSession,
		so: func(s setting) error { return s.answers(404, "/v1/sessions/"+s.session+"/messages/"+s.message) },
	},
	"look at a message": {
		entry: func(s setting) recorded { return rest("GET", "/sessions/"+s.session+"/messages/"+s.message, nil) }, prints: printsMessage,
	},
	"cancel by REST": {
		live: true,
		entry: func(s setting) recorded {
			return rest("POST", "/sessions/"+s.session+"/messages/"+s.message+"/cancel", nil)
		},
		so: setting.cancelled,
	},
	"cancel on the socket": {
		live: true,
		entry: func(s setting) recorded {
			return sentFrame(map[string]any{"type": "cancel", "id": "7", "sessionId": s.session, "messageId": s.message})
		},
		so: setting.cancelled,
	},
	"send by REST": {
		entry: func(s setting) recorded {
			return rest("POST", "/sessions/"+s.session+"/messages", map[string]any{"content": tricky, "streaming": false})
		},
		prints: func(setting) string { return words(3) },
		so:     setting.said,
	},
	"send on the socket": {
		entry: func(s setting) recorded {
			return sentFrame(map[string]any{"type": "send", "id": "3", "sessionId": s.session, "content": tricky, "idempotencyKey": "once"})
		},
		prints: func(setting) string { return words(3) },
		so:     setting.said,
	},
	"send with everything": {
		entry: func(s setting) recorded {
			return sentFrame(map[string]any{
				"type": "send", "id": "3", "sessionId": s.session, "content": tricky, "role": "user", "onBusy": "enqueue",
				"metadata": map[string]any{"why": tricky}, "idempotencyKey": "once",
			})
		},
		prints: func(setting) string { return words(3) },
		so:     setting.said,
	},
	"look at the usage": {
		entry:  func(setting) recorded { return rest("GET", "/analytics/usage", nil) },
		prints: func(setting) string { return "billingPeriod" },
	},
	"preview the context": {
		entry: func(s setting) recorded {
			return rest("POST", "/sessions/"+s.session+"/context", map[string]any{"content": tricky})
		},
		prints: func(setting) string { return "maxTokens" },
	},
	"take a ticket": {
		entry:  func(setting) recorded { return rest("POST", "/stream/tickets", map[string]any{}) },
		prints: func(setting) string { return "expiresAt" },
	},
}

// answers returns an error unless a GET returns that status.
func (s setting) answers(status int, path string) error {
	if got, _, err := s.p.call("GET", path, nil); err != nil || got != status {
		return fmt.Errorf("GET %s: %d %v", path, got, err)
	}
	return nil
}

// said returns an error unless the newest user message is the tricky one.
func (s setting) said() error {
	for _, found := range s.p.must("GET", "/v1/sessions/"+s.session+"/messages?limit=2", nil)["data"].([]any) {
		if found := found.(map[string]any); found["role"] == "user" && found["content"] != tricky {
			return fmt.Errorf("the message is %q", found["content"])
		}
	}
	return nil
}

// cancelled returns an error unless the reply was cancelled.
func (s setting) cancelled() error {
	if status, _ := kept(s.p, s.session); status != "cancelled" {
		return fmt.Errorf("the reply is %s", status)
	}
	return nil
}

// set creates a setting.
func set(p *process, model *wordsModel, live bool) setting {
	session := p.must("POST", "/v1/sessions", map[string]any{"userId": "user_0123456789abcdef"})["sessionId"].(string)
	model.allow(held)
	path := "/v1/sessions/" + session + "/messages"
	reply := p.must("POST", path, map[string]any{"content": "say 2"})
	cursor := p.must("GET", path, nil)["stream"].(map[string]any)["cursor"].(string)
	if live {
		reply = p.must("POST", path, map[string]any{"content": "say 60", "streaming": true})
	}
	return setting{p, session, reply["messageId"].(string), cursor}
}

// play is one snippet in one language, where it runs, and its expected result.
type play struct {
	setting
	performed
	kind, language, text string
}

// generous raises the rate limits.
const generous = `PARLEY_TIERS={"pro":{"requestsPerMinute":10000,"tokensPerMinute":10000000}}`

// TestSnippets_Run runs every snippet of the inspector against a real server: curl in a shell, JavaScript in node with the client
// that the server serves, Go in its own module.
func TestSnippets_Run(t *testing.T) {
	t.Parallel()
	needs(t, "node", "curl", "go", "sh")
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), append(model.env(), generous)...)
	languages := []string{"curl", "JavaScript", "Go"}
	var plays []*play
	var entries []recorded
	for kind, performed := range performances {
		for _, language := range languages {
			s := set(p, model, performed.live)
			plays = append(plays, &play{setting: s, performed: performed, kind: kind, language: language})
			entries = append(entries, performed.entry(s))
		}
	}
	for i, calls := range callsOf(t, p.url+"/v1", entries) {
		for _, call := range calls {
			if call.Name == plays[i].language {
				plays[i].text = call.Text
			}
		}
	}
	s := newStage(t, p)
	s.build(plays)
	for i, play := range plays {
		t.Run(play.language+" "+play.kind, func(t *testing.T) {
			output, err := s.run(i, play).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, output, play.text)
			}
			if play.prints != nil && !strings.Contains(string(output), play.prints(play.setting)) {
				t.Errorf("the output lacks %q:\n%s\nThe snippet:\n%s", play.prints(play.setting), output, play.text)
			}
			if play.so != nil {
				if err := play.so(play.setting); err != nil {
					t.Errorf("%v\n%s\n%s", err, output, play.text)
				}
			}
		})
	}
}

// TestSnippets_Subscription deletes the session to end the snippets that watch it.
func TestSnippets_Subscription(t *testing.T) {
	t.Parallel()
	needs(t, "node", "curl", "go", "sh")
	model := newHeldModel(t, held)
	p := serveIn(t, t.TempDir(), append(model.env(), generous)...)
	var plays []*play
	var entries []recorded
	for _, after := range []bool{true, false} {
		for range 2 {
			s := set(p, model, false)
			frame := map[string]any{"type": "subscribe", "id": "1", "sessionId": s.session}
			if after {
				frame["after"] = s.cursor
			}
			entries = append(entries, sentFrame(frame))
			plays = append(plays, &play{setting: s, kind: fmt.Sprintf("watch, with a cursor: %v", after)})
		}
	}
	for i, calls := range callsOf(t, p.url+"/v1", entries) {
		which := calls[1+i%2]
		plays[i].language, plays[i].text = which.Name, which.Text
		if i == 0 && (!strings.HasPrefix(calls[0].Text, "# ") || !strings.Contains(calls[0].Text, "/messages?order=asc")) {
			t.Errorf("the curl snippet is\n%s", calls[0].Text)
		}
	}
	s := newStage(t, p)
	s.build(plays)
	for i, play := range plays {
		t.Run(play.language+" "+play.kind, func(t *testing.T) {
			process := start(t, s.run(i, play))
			for n := 1; !strings.Contains(process.out.String(), word(0)); n++ { // without a cursor, it has to be there first
				p.must("POST", "/v1/sessions/"+play.session+"/messages", map[string]any{"content": fmt.Sprintf("say %d", min(n, held))})
			}
			process.out.await(func(text string) bool { return strings.Contains(text, word(0)) }, process.exited)
			p.must("DELETE", "/v1/sessions/"+play.session, nil)
			if code := process.wait().ExitCode(); code != 0 || !strings.Contains(process.out.String(), "deleted") {
				t.Errorf("exit code %d\n%s%s\n%s", code, process.out, process.errs, play.text)
			}
		})
	}
}

// call is a snippet of snippets.js.
type call struct{ Name, Text string }

// callsOf runs snippets.js in node.
func callsOf(t *testing.T, base string, entries []recorded) (calls [][]call) {
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

// stage is a folder in which snippets are built and run.
type stage struct {
	t      *testing.T
	p      *process
	folder string
}

func newStage(t *testing.T, p *process) *stage { return &stage{t, p, t.TempDir()} }

func (s *stage) write(name, text string) string {
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

func (s *stage) must(command *exec.Cmd) []byte {
	s.t.Helper()
	command.Dir = s.folder
	output, err := command.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", command.Args, err, output)
	}
	return output
}

var (
	curlsClient = regexp.MustCompile(`(?m)^// (curl -O '[^']*')`)
	moduleLine  = regexp.MustCompile(`(?m)^module .*$`)
)

// build writes the snippets. Go's go into a module that replaces parley by this checkout, and are vetted, checked for formatting
// and built. JavaScript's go beside the client, which is downloaded with the command that they name.
func (s *stage) build(plays []*play) {
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
	neighbour := fmt.Sprintf("module calls\n\nrequire parley v0.0.0\n\nreplace parley => %s\n", root)
	s.write("go.mod", moduleLine.ReplaceAllLiteralString(string(module), neighbour))
	s.write("go.sum", string(sums))
	fetched := false
	for i, play := range plays {
		switch play.language {
		case "curl":
			s.write(s.name(i)+".sh", play.text)
		case "JavaScript":
			s.write(s.name(i)+".mjs", play.text)
			if found := curlsClient.FindStringSubmatch(play.text); found != nil && !fetched {
				s.must(exec.Command("sh", "-c", found[1]+" -sS"))
				s.write("package.json", `{"type":"module"}`)
				fetched = true
			}
		case "Go":
			s.write(filepath.Join(s.name(i), "main.go"), play.text)
		}
	}
	s.must(exec.Command("go", "vet", "./..."))
	s.must(exec.Command("go", "build", "-o", "bin/", "./..."))
	if unformatted := bytes.TrimSpace(s.must(exec.Command("gofmt", "-l", "."))); len(unformatted) > 0 {
		s.t.Errorf("not formatted by gofmt: %s", unformatted)
	}
}

func (s *stage) name(i int) string { return "play" + strconv.Itoa(i) }

// run returns the command that runs a snippet with the key in its environment.
func (s *stage) run(i int, play *play) *exec.Cmd {
	command := map[string]*exec.Cmd{
		"curl":       exec.Command("sh", s.name(i)+".sh"),
		"JavaScript": exec.Command("node", "--experimental-websocket", "--no-warnings", s.name(i)+".mjs"),
		"Go":         exec.Command(filepath.Join(s.folder, "bin", s.name(i))),
	}[play.language]
	command.Dir = s.folder
	command.Env = append(os.Environ(), "KEY="+s.p.key)
	return command
}
