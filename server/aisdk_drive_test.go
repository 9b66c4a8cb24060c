package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parley/web/npmtest"
)

// driven is a page built on the AI SDK: the real npm package ai, in Node (testdata/aisdk/drive.mjs). The package is
// installed once, beside Go's caches, in the version of the package-lock.json there.
type driven struct {
	t   *testing.T
	in  io.WriteCloser
	out <-chan driverEvent
	// frames are those that the page has received.
	frames []sdkFrame
	log    frameLog
}

// driverEvent is a line of the driver's output.
type driverEvent struct {
	Event, Do, Chat, Frame, Status, Error string
	Code                                  int
	Messages                              []sdkMessage
	Finished                              struct {
		FinishReason string
		IsAbort      bool
	}
}

// sdkMessage is a message as the page shows it.
type sdkMessage struct{ ID, Role, Text string }

// sdkFrame is a frame that the server sent.
type sdkFrame struct {
	Type, RequestID, ErrorText string
	Sequence                   int
	Chunk                      struct{ Type, MessageID, Delta, FinishReason string }
}

// drive opens a page at a server. It is closed at the end of the test.
func (p *parley) drive(t *testing.T) *driven {
	t.Helper()
	packages := npmtest.Install(t, "testdata/aisdk")
	ctx, cancel := context.WithCancel(context.Background())
	const script = "testdata/aisdk/drive.mjs"
	if _, err := os.Stat(script); err != nil { // so that Go keeps no result of another script
		t.Fatal(err)
	}
	command := exec.CommandContext(ctx, "node", "--experimental-websocket", "--no-warnings", script,
		filepath.Join(packages, "node_modules/ai/dist/index.js"), p.url, adminKey)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	command.Stderr = &complaints
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	events := make(chan driverEvent, 1<<14) // no test has so many
	go func() {
		defer close(events)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			var e driverEvent
			if err != nil || json.Unmarshal(line, &e) != nil {
				return
			}
			events <- e
		}
	}()
	t.Cleanup(func() {
		_ = in.Close() // the driver's end
		late := time.AfterFunc(testTimeout, cancel)
		defer late.Stop()
		for range events {
		}
		err := command.Wait()
		cancel()
		if err != nil || complaints.Len() > 0 {
			t.Errorf("the driver: %v\n%s", err, &complaints)
		}
	})
	d := &driven{t: t, in: in, out: events, log: frameLog{dialect: aiSDK}}
	d.until("the driver", func(e driverEvent) bool { return e.Event == "ready" })
	return d
}

// do gives the driver a command.
func (d *driven) do(command, chat string, more ...string) {
	d.t.Helper()
	fields := map[string]any{"do": command, "chat": chat}
	for i := 0; i < len(more); i += 2 {
		fields[more[i]] = more[i+1]
	}
	d.give(fields)
}

func (d *driven) give(fields map[string]any) {
	d.t.Helper()
	line, err := json.Marshal(fields)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		d.t.Fatal(err)
	}
}

// until reads the driver's events until one matches. It checks all frames against the AsyncAPI document.
func (d *driven) until(what string, is func(driverEvent) bool) driverEvent {
	d.t.Helper()
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	for {
		select {
		case e, ok := <-d.out:
			if !ok {
				d.t.Fatalf("the driver ended before %s", what)
			}
			switch e.Event {
			case "sent":
				d.log.write([]byte(e.Frame))
			case "received":
				d.log.read(d.t, []byte(e.Frame))
				var f sdkFrame
				if err := json.Unmarshal([]byte(e.Frame), &f); err != nil {
					d.t.Fatal(err)
				}
				d.frames = append(d.frames, f)
			}
			if is(e) {
				return e
			}
		case <-late.C:
			d.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// done waits until a command is done.
func (d *driven) done(command, chat string) driverEvent {
	d.t.Helper()
	return d.until(command+" of "+chat, func(e driverEvent) bool { return e.Event == "done" && e.Do == command && e.Chat == chat })
}

// shown waits until a chat shows exactly these texts, oldest first.
func (d *driven) shown(chat string, texts ...string) []sdkMessage {
	d.t.Helper()
	last := ""
	defer func() {
		if d.t.Failed() {
			d.t.Log("shown at last: ", last)
		}
	}()
	return d.until(fmt.Sprintf("%q in %s", texts, chat), func(e driverEvent) bool {
		if e.Event != "shown" || e.Chat != chat {
			return false
		}
		last = fmt.Sprint(e.Messages)
		if len(e.Messages) != len(texts) {
			return false
		}
		for i, m := range e.Messages {
			if m.Text != texts[i] {
				return false
			}
		}
		return true
	}).Messages
}

// open opens a chat of a session with the messages that the page already has.
func (d *driven) open(chat, session string) {
	d.t.Helper()
	d.do("open", chat, "session", session)
	d.done("open", chat)
}
