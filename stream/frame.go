package stream

import (
	"sync"
	"sync/atomic"
)

// Encoder writes an event down for the wire. Its dynamic type must be comparable: encoders that are equal must give
// equal frames for the same event, whoever views it.
type Encoder interface {
	AppendFrame(dst []byte, topic string, event Event) []byte
}

// Frame is an encoded event, shared by all viewers that stand at the same place. Its holder must not change Bytes,
// and calls Release once, when it is written.
type Frame struct {
	Bytes []byte
	refs  atomic.Int32
}

// maxPooledFrame keeps the rare large frame from living in the pool for ever.
const maxPooledFrame = 64 << 10

var framePool = sync.Pool{New: func() any { return new(Frame) }}

func newFrame(topic string, event Event, encoder Encoder) *Frame {
	f := framePool.Get().(*Frame)
	f.refs.Store(1)
	f.Bytes = encoder.AppendFrame(f.Bytes[:0], topic, event)
	return f
}

// Release gives the frame back. After it the holder must not touch the frame.
func (f *Frame) Release() {
	if f.refs.Add(-1) == 0 && cap(f.Bytes) <= maxPooledFrame {
		framePool.Put(f)
	}
}

// frames remembers the last frames that were encoded of an entry, so that viewers in lockstep share them. A few
// slots serve the herd and those one delta behind it; a straggler encodes for itself.
type frames struct {
	mu    sync.Mutex
	slots [2]frameSlot
	next  int
}

type frameSlot struct {
	kind     EventKind
	from, to int
	encoder  Encoder
	frame    *Frame
}

// Encode returns the event as a frame for the viewers of topic, encoded once for all of them that are shown just
// this event. The caller owes the frame a Release.
func (t *Topic) Encode(event Event, encoder Encoder) *Frame {
	if event.Entry == nil {
		return newFrame(t.name, event, encoder)
	}
	c := &event.Entry.frames
	want := frameSlot{kind: event.Kind, from: event.Offset, to: event.Offset + len(event.Delta), encoder: encoder}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.slots {
		s := &c.slots[i]
		if s.frame != nil && s.kind == want.kind && s.from == want.from && s.to == want.to && s.encoder == want.encoder {
			s.frame.refs.Add(1)
			return s.frame
		}
	}
	want.frame = newFrame(t.name, event, encoder)
	want.frame.refs.Add(1)
	slot := &c.slots[c.next]
	c.next = (c.next + 1) % len(c.slots)
	if slot.frame != nil {
		slot.frame.Release()
	}
	*slot = want
	return want.frame
}
