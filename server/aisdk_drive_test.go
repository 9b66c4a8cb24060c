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

// sdkPage controls the driver (testdata/aisdk/drive.mjs). The driver is a Node process that plays the part of a web page with the
// real AI SDK, the npm package ai. npmtest.Install puts the package into the user's cache folder once, in the version that
// testdata/aisdk/package-lock.json pins.
type sdkPage struct {
	t   *testing.T
	in  io.WriteCloser
	out <-chan driverEvent
	// frames holds the received frames that the method until has read.
	frames []sdkFrame
	log    frameLog
}

// driverEvent is a line of the driver's output, decoded from JSON.
type driverEvent struct {
	Event, Do, Chat, Frame, Status, Error string
	Code                                  int
	Messages                              []sdkMessage
	Finished                              struct {
		FinishReason string
		IsAbort      bool
	}
}

// sdkMessage is a message that a chat shows.
type sdkMessage struct{ ID, Role, Text string }

// sdkFrame is a frame of ai-sdk.v7 from the server.
type sdkFrame struct {
	Type, RequestID, ErrorText string
	Sequence                   int
	Chunk                      struct{ Type, MessageID, Delta, FinishReason string }
}

// openSDKPage starts a driver that connects to the server. The driver runs until the test ends.
func (p *parley) openSDKPage(t *testing.T) *sdkPage {
	t.Helper()
	packages := npmtest.Install(t, "testdata/aisdk")
	ctx, cancel := context.WithCancel(context.Background())
	const script = "testdata/aisdk/drive.mjs"
	if _, err := os.Stat(script); err != nil { // so that go test repeats the test if the script has changed
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
	var stderr strings.Builder
	command.Stderr = &stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	events := make(chan driverEvent, 1<<14) // more events than a test produces
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
		_ = in.Close() // makes the driver exit
		late := time.AfterFunc(testTimeout, cancel)
		defer late.Stop()
		for range events {
		}
		err := command.Wait()
		cancel()
		if err != nil || stderr.Len() > 0 {
			t.Errorf("the driver: %v\n%s", err, &stderr)
		}
	})
	d := &sdkPage{t: t, in: in, out: events, log: frameLog{dialect: aiSDK}}
	d.until("the driver", func(e driverEvent) bool { return e.Event == "ready" })
	return d
}

// do sends the driver a command for a chat. The parameter more holds alternating names and values of further fields.
func (d *sdkPage) do(command, chat string, more ...string) {
	d.t.Helper()
	fields := map[string]any{"do": command, "chat": chat}
	for i := 0; i < len(more); i += 2 {
		fields[more[i]] = more[i+1]
	}
	d.command(fields)
}

func (d *sdkPage) command(fields map[string]any) {
	d.t.Helper()
	line, err := json.Marshal(fields)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		d.t.Fatal(err)
	}
}

// until reads events of the driver up to the first event that match accepts, and returns that event. It checks all frames against
// asyncapi.yaml. The parameter what names the awaited event in the failure message.
func (d *sdkPage) until(what string, match func(driverEvent) bool) driverEvent {
	d.t.Helper()
	late := time.NewTimer(testTimeout)
	defer late.Stop()
	for {
		select {
		case e, ok := <-d.out:
			if !ok {
				d.t.Fatalf("the driver exited before %s", what)
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
			if match(e) {
				return e
			}
		case <-late.C:
			d.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// done waits until the driver has finished a command for a chat, and returns the event that reports the result.
func (d *sdkPage) done(command, chat string) driverEvent {
	d.t.Helper()
	return d.until(command+" of "+chat, func(e driverEvent) bool { return e.Event == "done" && e.Do == command && e.Chat == chat })
}

// shown waits until a chat shows exactly these texts, oldest first. It returns the messages with their ids.
func (d *sdkPage) shown(chat string, texts ...string) []sdkMessage {
	d.t.Helper()
	last := ""
	defer func() {
		if d.t.Failed() {
			d.t.Log("the page last showed: ", last)
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

// open opens a chat without messages for a session.
func (d *sdkPage) open(chat, session string) {
	d.t.Helper()
	d.do("open", chat, "session", session)
	d.done("open", chat)
}
