package server_test

import (
	"html"
	"mime"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"parley/conversation/service"
	"parley/server"
	"parley/web"
)

// pageCommands holds the shell commands on /docs.
type pageCommands struct {
	variables  []string            // commands that set variables
	operations map[string][]string // curl commands, by the id of the operation
}

func shownCommands(t *testing.T, page string) pageCommands {
	t.Helper()
	s := pageCommands{operations: make(map[string][]string)}
	command := regexp.MustCompile(`(?s)<pre class="copy"><code>(.*?)</code></pre>`)
	parts := regexp.MustCompile(`<h[23] id="([^"]*)">`).FindAllStringSubmatchIndex(page, -1)
	for i, part := range parts {
		end := len(page)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		id := page[part[2]:part[3]]
		for _, found := range command.FindAllStringSubmatch(page[part[1]:end], -1) {
			text := html.UnescapeString(found[1])
			switch {
			case id == "try":
				s.variables = append(s.variables, text)
			case strings.HasPrefix(text, "curl"):
				s.operations[id] = append(s.operations[id], text)
			}
		}
	}
	if len(s.variables) != 5 {
		t.Fatalf("want 5 commands that set variables, got %d: %q", len(s.variables), s.variables)
	}
	return s
}

// requireCommand skips the test with -short, or if the command is not installed. If CI=true, a missing command fails the test.
// The parameter from is the Debian package that contains the command.
func requireCommand(t *testing.T, command, from string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: %s is not started", command)
	}
	if _, err := exec.LookPath(command); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: apt-get install %s", command, from)
		}
		t.Skipf("SKIPPED: %s is missing (apt-get install %s)", command, from)
	}
}

// TestDocs_CurlCommands_Succeed runs the curl commands of every operation on /docs in a shell.
func TestDocs_CurlCommands_Succeed(t *testing.T) {
	t.Parallel()
	requireCommand(t, "curl", "curl")
	p := start(t, echo, func(o *server.Options, _ *service.Options) { o.Page = web.Handler(web.Options{}) })
	shown := shownCommands(t, p.call("GET", "/docs", nil).raw)
	for _, path := range documents.openAPI.Paths.InMatchingOrder() {
		for method, operation := range documents.openAPI.Paths.Value(path).Operations() {
			commands := shown.operations[operation.OperationID]
			if len(commands) == 0 {
				t.Errorf("%s has no command", operation.OperationID)
			}
			if operation.RequestBody != nil && operation.RequestBody.Value.Required && !strings.Contains(strings.Join(commands, ""), " -d '{") {
				t.Errorf("%s needs a body, but its command has none", operation.OperationID)
			}
			for i, command := range commands {
				t.Run(operation.OperationID+"_"+strconv.Itoa(i+1), func(t *testing.T) {
					p.runCommand(t, shown.variables, command, place{openAPIFile, ""}.child("paths", path, strings.ToLower(method), "responses"))
				})
			}
		}
	}
}

// runCommand runs a command in a shell, after the commands that set variables. The response must have the status 200, or 101 for
// a WebSocket. The body must match openapi.yaml.
func (p *parley) runCommand(t *testing.T, variables []string, command string, responses place) {
	t.Helper()
	want := "200"
	if _, upgrades := documents.members(responses)["101"]; upgrades {
		want, command = "101", command+" -m 1" // curl exits after 1 s, because the WebSocket stays open
	}
	body, headers := filepath.Join(t.TempDir(), "body"), filepath.Join(t.TempDir(), "headers")
	// The first two variables are the address and the key. The test sets other values.
	lines := append([]string{"PARLEY=" + p.url, "KEY=" + adminKey}, variables[2:]...)
	lines = append(lines, command+` -sS -D "`+headers+`" -o "`+body+`" -w '\n%{http_code}'`)
	output, err := exec.CommandContext(t.Context(), "sh", "-uc", strings.Join(lines, "\n")).CombinedOutput()
	if !strings.HasSuffix(string(output), "\n"+want) || err != nil && want == "200" {
		text, _ := os.ReadFile(body)
		t.Fatalf("%v\n%s\n%s\n%s", err, output, command, text)
	}
	if want == "101" {
		return
	}
	text, err := os.ReadFile(body)
	if err != nil || len(text) == 0 {
		t.Fatalf("%d bytes of body: %v", len(text), err)
	}
	head, err := os.ReadFile(headers)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?im)^content-type: (.*?)\r?$`).FindSubmatch(head)
	if found == nil {
		t.Fatalf("no content type: %s", head)
	}
	mediaType, _, err := mime.ParseMediaType(string(found[1]))
	content := documents.members(documents.members(responses)["200"].child("content"))
	media, described := content[mediaType]
	if err != nil || !described {
		t.Fatalf("openapi.yaml does not describe the response's content type %s: %v", found[1], err)
	}
	if mediaType == "application/json" {
		if err := documents.checkJSON(media.child("schema"), text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
