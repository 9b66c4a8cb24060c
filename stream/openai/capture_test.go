package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"parley/stream"
)

// capture is a recorded response of a real server. The files of testdata contain captures.
type capture struct {
	name   string
	status int
	head   string // status line and headers, with CR LF, as the server sent them
	body   []byte
	raw    bool // body contains the chunk sizes of the chunked transfer encoding, as the server sent them
}

var (
	cutMarker = regexp.MustCompile(`(?m)^… \(\d+ lines cut here\) …\n`)
	cutEnd    = regexp.MustCompile(`(?m)^\[cut here by .*\]\n`)
	chunkSize = regexp.MustCompile(`^[0-9a-f]+$`)
)

// load reads a capture from testdata. A file usually contains the curl command, the head, an empty line and the body. Its
// lines end with LF, although the server sent CR LF.
func load(t testing.TB, name string) capture {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for bytes.HasPrefix(file, []byte("$ ")) || bytes.HasPrefix(file, []byte("# ")) {
		_, file, _ = bytes.Cut(file, []byte("\n"))
	}
	head, body, ok := bytes.Cut(file, []byte("\n\n"))
	if !ok {
		t.Fatalf("%s: no body", name)
	}
	c := capture{name: name, head: strings.ReplaceAll(string(head), "\n", "\r\n") + "\r\n\r\n"}
	c.status, _ = strconv.Atoi(strings.Fields(c.head)[1])
	c.raw = strings.Contains(name, "raw")
	if c.raw {
		c.body = rechunk(t, body)
		return c
	}
	body = cutEnd.ReplaceAll(cutMarker.ReplaceAll(body, nil), nil)
	if m := regexp.MustCompile(`Content-Length: (\d+)`).FindStringSubmatch(c.head); m != nil {
		n, _ := strconv.Atoi(m[1])
		body = body[:min(n, len(body))]
	}
	c.body = body
	return c
}

// rechunk restores the CR LF between the chunks of a raw body. If lines of a chunk are missing in the file, rechunk drops
// the chunk.
func rechunk(t testing.TB, body []byte) []byte {
	t.Helper()
	var wire bytes.Buffer
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		if !chunkSize.Match(line) {
			body = rest // the line belongs to an incomplete chunk
			continue
		}
		size, _ := strconv.ParseUint(string(line), 16, 32)
		n := int(size)
		if n > 0 && rest[n] != '\n' {
			t.Fatalf("no CR LF after a chunk of %d bytes", n)
		}
		fmt.Fprintf(&wire, "%x\r\n%s\r\n", n, rest[:n])
		body = rest[min(n+1, len(rest)):]
		if n == 0 {
			break
		}
	}
	return wire.Bytes()
}

// lines returns the lines of the body, without carriage returns.
func (c capture) lines() []string {
	body := string(c.body)
	if c.raw {
		body = strings.ReplaceAll(body, "\r", "")
	}
	return strings.Split(body, "\n")
}

// expected is the reply that a response must produce.
type expected struct {
	text   string
	finish string
	usage  *stream.Usage
	done   bool // the response contains [DONE]
}

// expected returns the reply that the capture must produce. It decodes the events with encoding/json only.
func (c capture) expected(t testing.TB) (e expected) {
	t.Helper()
	for _, line := range c.lines() {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			e.done = true
			continue
		}
		var event map[string]any
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatalf("%s: %v in %s", c.name, err, line)
		}
		choices, _ := event["choices"].([]any)
		for _, one := range choices {
			choice := one.(map[string]any)
			if choice["index"].(float64) != 0 {
				continue
			}
			content, _ := choice["delta"].(map[string]any)["content"].(string)
			e.text += content
			if finish, ok := choice["finish_reason"].(string); ok {
				e.finish = finish
			}
		}
		if usage, ok := event["usage"].(map[string]any); ok {
			e.usage = &stream.Usage{
				Prompt:     int(usage["prompt_tokens"].(float64)),
				Completion: int(usage["completion_tokens"].(float64)),
			}
		}
	}
	return e
}

// streams returns all captures of complete streamed responses, of Ollama and of llama-server.
func streams(t testing.TB) (all []capture) {
	t.Helper()
	for server, names := range map[string]string{
		"llama-server": "03-stream 04-stream-usage 05-stream-usage-stop 06-stream-n2 07-stream-logprobs 08-stream-tools " +
			"20-max-tokens-0 24-json-schema 25-utf8-hot 26-raw-chunked 28-max-completion-tokens 30-http10 32-gzip",
		"ollama": "03-stream 04-stream-usage 05-stream-usage-stop 06-stream-n2 07-stream-logprobs 19-ctx-overflow-stream " +
			"24-json-schema 25-utf8-hot 26-raw-chunked 30-http10 32-gzip",
	} {
		for _, name := range strings.Fields(names) {
			all = append(all, load(t, server+"/"+name+".txt"))
		}
	}
	return all
}

// chunked reports whether the server used the chunked transfer encoding.
func (c capture) chunked() bool { return strings.Contains(c.head, "Transfer-Encoding: chunked") }

// pieces splits the response into the writes that send it: the head, then the body cut at the offsets cuts. If the server
// used the chunked transfer encoding, each piece of the body is one chunk.
func (c capture) pieces(cuts ...int) (writes [][]byte) {
	writes = append(writes, []byte(c.head))
	from := 0
	for _, to := range append(cuts, len(c.body)) {
		piece := c.body[from:to]
		if from = to; len(piece) == 0 {
			continue
		}
		if c.chunked() && !c.raw {
			piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
		}
		writes = append(writes, piece)
	}
	if c.chunked() && !c.raw {
		writes = append(writes, []byte("0\r\n\r\n"))
	}
	return writes
}
