package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"parley/conversation"
)

// faultLogInterval is the shortest time between two errors about the same fault of the store. While the store has a fault, most
// requests and background jobs fail with it, and thousands of equal lines a second could fill the disk.
const faultLogInterval = time.Minute

// faultLog is a handler of log records. It passes on one warning or error about a fault of the store
// (conversation.StoreFault) in each faultLogInterval, and one record of a lower level after that, which says that the
// fault has ended. It leaves out other records about the fault, and adds their number to the next record as "omitted".
// It passes on records that are not about a fault.
type faultLog struct {
	slog.Handler
	lines *faultLines
}

// faultLines records what a faultLog and the handlers that derive from it have logged.
type faultLines struct {
	mu     sync.Mutex
	faults map[string]*faultLine // guarded by mu; by the name of the fault
}

type faultLine struct {
	last    time.Time // time of the last warning or error
	open    bool      // no record of a lower level has followed the last warning or error
	omitted int       // number of records that were left out since the last record
}

func newFaultLog(handler slog.Handler) slog.Handler {
	return faultLog{handler, &faultLines{faults: make(map[string]*faultLine)}}
}

func (h faultLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return faultLog{h.Handler.WithAttrs(attrs), h.lines}
}

func (h faultLog) WithGroup(name string) slog.Handler {
	return faultLog{h.Handler.WithGroup(name), h.lines}
}

func (h faultLog) Handle(ctx context.Context, record slog.Record) error {
	fault := faultOf(record)
	if fault == nil {
		return h.Handler.Handle(ctx, record)
	}
	omitted, due := h.lines.add(fault.Name, record.Level, record.Time)
	if !due {
		return nil
	}
	if omitted > 0 {
		record = record.Clone()
		record.AddAttrs(slog.Int("omitted", omitted))
	}
	return h.Handler.Handle(ctx, record)
}

// faultOf returns the fault of the store in an error of the record; nil if there is none.
func faultOf(record slog.Record) (fault *conversation.StoreFault) {
	record.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			fault, _ = errors.AsType[*conversation.StoreFault](err)
		}
		return fault == nil
	})
	return fault
}

// add counts a record. It reports whether the record is due, and if so, how many records were left out before.
func (l *faultLines) add(name string, level slog.Level, now time.Time) (omitted int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.faults[name]
	if line == nil {
		line = new(faultLine)
		l.faults[name] = line
	}
	if bad := level >= slog.LevelWarn; bad {
		due = now.Sub(line.last) >= faultLogInterval
		if due {
			line.last, line.open = now, true
		}
	} else {
		due, line.open = line.open, false
	}
	if !due {
		line.omitted++
		return 0, false
	}
	omitted, line.omitted = line.omitted, 0
	return omitted, true
}
