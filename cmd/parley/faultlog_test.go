package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
)

func TestFaultLog_SameFault_OneLineAMinuteWithCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(newFaultLog(slog.NewTextHandler(&out, nil)))
		full := fmt.Errorf("a send failed: %w", conversation.ErrStoreFull)
		for _, step := range []struct {
			name string
			log  func()
			want string // a part of the only line; "" for no line
		}{
			{"first error", func() { log.Error("request failed", "error", full) }, "level=ERROR msg=\"request failed\""},
			{"warning within the minute", func() { log.With("job", 1).Warn("no summary", "error", full) }, ""},
			{"other fault", func() { log.Error("request failed", "error", conversation.ErrStoreMoved) }, "removed or replaced"},
			{"no fault", func() { log.Error("request failed", "error", conversation.ErrUnavailable) }, "unavailable"},
			{"end of the fault", func() { log.Info("ended", "fault", full) }, "omitted=1"},
			{"second end", func() { log.Info("ended", "fault", full) }, ""},
			{"error after a minute", func() { time.Sleep(time.Minute); log.Error("again", "error", full) }, "omitted=1"},
			{"error soon after", func() { log.Error("again", "error", full) }, ""},
		} {
			out.Reset()
			step.log()
			if got := out.String(); !strings.Contains(got, step.want) || strings.Count(got, "\n") != min(1, len(step.want)) {
				t.Errorf("%s: logged %q, want one line with %q", step.name, got, step.want)
			}
		}
	})
}
