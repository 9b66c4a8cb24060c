package stream

import (
	"sync"
	"sync/atomic"
)

// Encoder encodes an event for the wire. The dynamic type of an Encoder must be comparable. Equal encoders must return
// equal frames for the same event, because viewers with equal encoders share frames.
type Encoder interface {
	AppendFrame(dst []byte, topic string, event Event) []byte
}

// Frame is an encoded event. Viewers at the same position share a frame. Each holder must call Release once, after it has
// written Bytes. It must not change Bytes.
type Frame struct {
	Bytes []byte
	refs  atomic.Int32
}

// maxPooledFrame is the maximum size of a buffer in framePool, in bytes. Larger frames are rare, so the pool would keep
// their buffers in memory for nothing. For the same reason, an entry does not hold a larger frame: viewers share it while
// one of them holds it.
const maxPooledFrame = 64 << 10

var framePool = sync.Pool{New: func() any { return new(Frame) }}

func newFrame(topic string, event Event, encoder Encoder) *Frame {
	f := framePool.Get().(*Frame)
	f.refs.Store(1)
	f.Bytes = encoder.AppendFrame(f.Bytes[:0], topic, event)
	return f
}

// Release drops the holder's reference. The holder must not use the frame afterwards.
func (f *Frame) Release() {
	large := f.large()
	switch {
	case f.refs.Add(-1) > 0:
	case large:
		f.Bytes = nil // a slot may still point to the frame
	default:
		framePool.Put(f)
	}
}

func (f *Frame) large() bool { return cap(f.Bytes) > maxPooledFrame }

// hold adds a reference. It returns false if the frame has been released by all holders.
func (f *Frame) hold() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// frames caches the last two encoded frames of an entry, so that viewers at the same offset share them. Two frames are
// enough for viewers that are up to date and for viewers that are one delta behind. Encode makes a new frame for any
// other viewer.
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
	holds    bool // the slot holds a reference to frame; false if the frame is large
}

// Encode returns the event as a frame for a viewer of the topic. Viewers that are shown the same event at about the same
// time get the same frame. The caller must release the frame.
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
		if s.frame != nil && s.kind == want.kind && s.from == want.from && s.to == want.to && s.encoder == want.encoder && s.frame.hold() {
			return s.frame
		}
	}
	want.frame = newFrame(t.name, event, encoder)
	want.holds = !want.frame.large() && want.frame.hold()
	slot := &c.slots[c.next]
	c.next = (c.next + 1) % len(c.slots)
	if slot.holds {
		slot.frame.Release()
	}
	*slot = want
	return want.frame
}
