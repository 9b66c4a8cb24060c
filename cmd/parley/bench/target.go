package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Target is a server under load.
type Target struct {
	URL   string // without /v1
	Key   string // an API key with the scope admin; a pipe ignores it
	PID   int    // the server's process; 0 finds the process that listens on the URL's port, if it runs on this machine
	Redis string // host:port or redis:// URL of the server's Redis; "" for none
}

// client makes the requests of a run.
type client struct {
	target Target
	http   *http.Client
}

const (
	// requestTimeout is the timeout of a request: longer than the 30 s that a send may wait in a queue, with the reply.
	requestTimeout = 90 * time.Second
	// maxIdle is the number of idle connections that the client keeps: at least one for each caller, so that no turn pays for a
	// new connection.
	maxIdle = 4096
	// maxBody limits the size of a response: a message has the whole reply, of up to 16 MiB, in JSON.
	maxBody = 64 << 20
)

// newClient checks the URL and returns a client.
func newClient(target Target) (*client, error) {
	target.URL = strings.TrimSuffix(strings.TrimSuffix(target.URL, "/"), "/v1")
	u, err := url.Parse(target.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("invalid address %q: use scheme, host and port, for example http://127.0.0.1:8420", target.URL)
	}
	transport := &http.Transport{MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, DisableCompression: true}
	return &client{target: target, http: &http.Client{Transport: transport, Timeout: requestTimeout}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// refusal is an error response of the server.
type refusal struct {
	request    string // method and path
	status     int
	code, text string
}

func (r *refusal) Error() string {
	message := fmt.Sprintf("%s: %d %s: %s", r.request, r.status, r.code, r.text)
	switch r.code {
	case "rate_limit_exceeded", "quota_exceeded":
		message += " (raise the limits of the server under load, for example PARLEY_TIERS='" + GenerousTiers + "')"
	case "invalid_token":
		message += " (set --key or KEY to an admin key of this server)"
	}
	return message
}

// GenerousTiers is a value of PARLEY_TIERS that no workload exceeds.
const GenerousTiers = `{"pro":{"requestsPerMinute":1000000000,"tokensPerMinute":1000000000,"framesPerMinute":1000000000,` +
	`"activeSessions":1000000000,"storedBytes":1000000000000,"keys":100000,"sockets":1000000}}`

// do makes a request with the client's key. It decodes the response into result unless result is nil. An error status is a
// *refusal.
func (c *client) do(ctx context.Context, method, path string, body, result any) error {
	return c.doWith(ctx, c.target.Key, method, path, body, result)
}

// doWith makes a request with another key.
func (c *client) doWith(ctx context.Context, key, method, path string, body, result any) error {
	var reader io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.target.URL+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return c.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		return newRefusal(method+" "+withoutIDs(path), response.StatusCode, text)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return fmt.Errorf("%s %s: the response is no JSON of Parley: %w", method, path, err)
	}
	return nil
}

// withoutIDs replaces the ids in a path, so that equal errors of different sessions have the same text.
func withoutIDs(path string) string {
	path, _, _ = strings.Cut(path, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.Contains(s, "_") {
			segments[i] = "…"
		}
	}
	return strings.Join(segments, "/")
}

func newRefusal(request string, status int, text []byte) *refusal {
	var body struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(text, &body)
	if body.Error.Code == "" {
		body.Error.Code, body.Error.Message = "unknown", "the response is no error of Parley"
	}
	return &refusal{request, status, body.Error.Code, body.Error.Message}
}

// explain returns err with the address of the server that does not respond.
func (c *client) explain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the method and the URL, which follow
	}
	return fmt.Errorf("%s does not respond: %w", c.target.URL, err)
}

// mallocs returns the number of objects that the server has allocated since its start. ok is false if the server does not say.
func (c *client) mallocs(ctx context.Context) (n float64, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target.URL+"/metrics", nil)
	if err != nil {
		return 0, false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil || response.StatusCode != http.StatusOK {
		return 0, false
	}
	_, after, found := strings.Cut("\n"+string(text), "\n"+mallocsMetric+" ")
	value, _, _ := strings.Cut(after, "\n")
	n, err = strconv.ParseFloat(value, 64)
	return n, found && err == nil
}

// mallocsMetric is the metric of the Go runtime that counts allocated objects.
const mallocsMetric = "go_memstats_mallocs_total"
