package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"parley/cmd/chaos/history"
)

const (
	// soon is the deadline of a request that does not wait for a model or a queue. The server answers such requests within 2 s;
	// only a hang reaches the deadline, even on a busy machine.
	soon = 10 * time.Second
	// queued is the deadline of a send: 30 s in the queue, the reply itself, and 2 s until the reply's end is stored.
	queued = 45 * time.Second
)

// adminKey is the declared API key of the servers under test.
const adminKey = "svc_live_0123456789abcdefghijklmnopqrstuvwxyz"

// api makes REST requests and records their results.
type api struct {
	url    string // without a slash at the end
	http   *http.Client
	record *record
}

// newAPI returns an API client of a server or of the gate. Its connections are closed when the scene ends.
func newAPI(s *scene, url string, r *record) *api {
	a := &api{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, record: r}
	s.Cleanup(a.http.CloseIdleConnections)
	return a
}

// reply is a response of the API. It has the fields of all types of responses.
type reply struct {
	status int // 0 if no response arrived

	SessionID    string
	MessageID    string
	Role         string
	Status       string
	Content      string
	FinishReason string
	Usage        *struct{ Total int }
	MessageCount int
	TokenUsage   struct{ Total int }
	Data         []reply
	Pagination   struct {
		HasMore    bool
		NextCursor string
	}
	Error struct{ Code, MessageID string }
}

// message returns the message that a response contains.
func (a *reply) message() history.Message {
	m := history.Message{ID: a.MessageID, Role: a.Role, Status: a.Status, Content: a.Content, FinishReason: a.FinishReason}
	if a.Usage != nil {
		m.Usage = a.Usage.Total
	}
	return m
}

// call makes a request. If no response arrives before the deadline, the status is 0. key is the Idempotency-Key, or "". expected
// lists error statuses that the caller expects.
func (a *api) call(method, path string, body any, key string, deadline time.Duration, expected ...int) *reply {
	// The wait is longer than the deadline, so that a late response and a hang can be told apart.
	ctx, cancel := context.WithTimeout(context.Background(), deadline+5*time.Second)
	defer cancel()
	begun := time.Now()
	q := history.Request{What: method + " " + path, Begun: begun, Deadline: deadline}
	answer, err := a.exchange(ctx, method, path, body, key, &q)
	q.Took = time.Since(begun)
	if err != nil {
		answer = &reply{}
		q.Status = 0
	}
	q.Code, q.Expected = answer.Error.Code, slices.Contains(expected, answer.status)
	a.record.request(q)
	return answer
}

func (a *api) exchange(ctx context.Context, method, path string, body any, key string, q *history.Request) (*reply, error) {
	response, err := a.send(ctx, method, path, body, "Idempotency-Key", key)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 256<<20))
	if err != nil {
		return nil, err
	}
	answer := &reply{status: response.StatusCode}
	q.Status, q.RetryAfter = response.StatusCode, response.Header.Get("Retry-After") != ""
	if err := json.Unmarshal(text, answer); err != nil {
		answer.Error.Code = fmt.Sprintf("no JSON: %.60q", text)
	}
	return answer, nil
}

// send sends a request with one further header, unless value is "".
func (a *api) send(ctx context.Context, method, path string, body any, header, value string) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		encoded, _ := json.Marshal(body)
		reader = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, reader)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+adminKey)
	request.Header.Set("Content-Type", "application/json")
	if value != "" {
		request.Header.Set(header, value)
	}
	return a.http.Do(request)
}

// event is a server-sent event of a reply.
type event struct {
	id, kind string
	Offset   int
	Delta    string
	Message  reply
}

// errRefused means that a stream was refused with an error status; errGone, with 404.
var errRefused, errGone = errors.New("the stream was refused"), errors.New("the stream does not exist")

// stream reads the server-sent events of a reply after a cursor, and calls show for each event, until the stream ends
// or show returns false. It records an error status, as call does.
func (a *api) stream(ctx context.Context, path, after string, show func(event) bool) error {
	begun := time.Now()
	response, err := a.send(ctx, "GET", path+"/stream", nil, "Last-Event-ID", after)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var answer reply
		_ = json.NewDecoder(response.Body).Decode(&answer)
		a.record.request(history.Request{
			What: "GET " + path + "/stream", Begun: begun, Took: time.Since(begun), Deadline: soon,
			Status: response.StatusCode, Code: answer.Error.Code, RetryAfter: response.Header.Get("Retry-After") != "",
		})
		if response.StatusCode == http.StatusNotFound {
			return errGone
		}
		return errRefused
	}
	var e event
	var data string // the scanner also yields a line that was cut, but an event counts only after the empty line
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "id":
			e.id = value
		case name == "event":
			e.kind = value
		case name == "data":
			data = value
		case name == "" && value == "" && e.kind != "":
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return fmt.Errorf("an event that is no JSON: %w", err)
			}
			if !show(e) {
				return nil
			}
			e, data = event{}, ""
		}
	}
	return lines.Err()
}
