package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// These prefixes begin the names of a dialect's frames in the AsyncAPI document.
const (
	parleyV1 = ""
	aiSDK    = "ai-sdk."
)

// frameLog checks the frames of a socket against the AsyncAPI document: all frames of the server, and those of the client
// that got a response other than an error.
type frameLog struct {
	dialect string // static; the prefix of its frames' names in the document

	mu   sync.Mutex
	sent map[string][]byte // guarded by mu; by id: frames without a response so far
}

func (l *frameLog) write(frame []byte) {
	var head struct{ ID, RequestID string }
	if json.Unmarshal(frame, &head) != nil {
		return
	}
	if l.dialect == aiSDK {
		head.ID = head.RequestID
	}
	if head.ID == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sent == nil {
		l.sent = make(map[string][]byte)
	}
	l.sent[head.ID] = frame
}

func (l *frameLog) read(t testing.TB, frame []byte) {
	t.Helper()
	var head struct{ Type, ReplyTo, RequestID string }
	if json.Unmarshal(frame, &head) != nil {
		return // a cut frame: the library does not always return an error, but the harness does
	}
	if err := documents.checkFrame(l.dialect, frame); err != nil {
		t.Errorf("a frame from the server does not match asyncapi.yaml: %v\n%.1000s", err, frame)
	}
	if l.dialect == aiSDK {
		head.ReplyTo = head.RequestID
	}
	if head.ReplyTo == "" {
		return
	}
	l.mu.Lock()
	request := l.sent[head.ReplyTo]
	delete(l.sent, head.ReplyTo)
	l.mu.Unlock()
	if request == nil || head.Type == "error" {
		return
	}
	if err := documents.checkFrame(l.dialect, request); err != nil {
		t.Errorf("a frame that the server accepted does not match asyncapi.yaml: %v\n%.1000s", err, request)
	}
}

// eventLog checks the events of an event stream against the AsyncAPI document while they are read.
type eventLog struct {
	io.ReadCloser
	t    testing.TB
	text []byte // what has not been checked yet
}

func (l *eventLog) Read(b []byte) (int, error) {
	n, err := l.ReadCloser.Read(b)
	l.text = append(l.text, b[:n]...)
	for {
		event, rest, whole := bytes.Cut(l.text, []byte("\n\n"))
		if !whole {
			return n, err
		}
		l.text = rest
		if wrong := checkEvent(string(event)); wrong != nil {
			l.t.Errorf("an event does not match asyncapi.yaml: %v\n%.1000s", wrong, event)
		}
	}
}

// checkEvent checks one event: a comment, or a frame with its type and, if it has one, its cursor.
func checkEvent(event string) error {
	fields := make(map[string]string)
	for line := range strings.SplitSeq(event, "\n") {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimPrefix(value, " ")
	}
	data, isFrame := fields["data"]
	if !isFrame {
		return nil
	}
	if fields["event"] == "" { // in the AI SDK's dialect
		if data == "[DONE]" && len(fields) == 1 {
			return nil
		}
		return documents.checkJSON(place{asyncAPIFile, "/components/schemas/AiSdkChunk"}, []byte(data))
	}
	var head struct{ Type, Cursor string }
	if err := json.Unmarshal([]byte(data), &head); err != nil {
		return err
	}
	if head.Type != fields["event"] || cmp.Or(head.Cursor, fields["id"]) != fields["id"] {
		return fmt.Errorf("event %q with id %q is no %s with the cursor %s", fields["event"], fields["id"], head.Type, head.Cursor)
	}
	return documents.checkFrame(parleyV1, []byte(data))
}
