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

// Each dialect has a prefix. In asyncapi.yaml, the name of a message is the prefix of the dialect followed by the frame's type.
const (
	parleyV1 = ""
	aiSDK    = "ai-sdk."
)

// frameLog checks the frames of a socket against asyncapi.yaml: all frames from the server, and the frames from the client that
// the server accepted.
type frameLog struct {
	dialect string // static; parleyV1 or aiSDK

	mu   sync.Mutex
	sent map[string][]byte // guarded by mu; the client's frames that have no response yet, by id
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
		return // the connection was cut inside the frame; the caller's decoding fails too
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

// eventLog checks the events of an event stream against asyncapi.yaml while a test reads the stream.
type eventLog struct {
	io.ReadCloser
	t    testing.TB
	text []byte // bytes that have not been checked yet
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

// checkEvent checks one event. A comment is valid. Any other event holds a frame, and must have the type and the cursor of the
// frame.
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
	if fields["event"] == "" { // format=ai-sdk
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
		return fmt.Errorf("the event %q with the id %q holds a frame %s with the cursor %s", fields["event"], fields["id"], head.Type, head.Cursor)
	}
	return documents.checkFrame(parleyV1, []byte(data))
}
