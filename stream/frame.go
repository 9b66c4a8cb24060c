package stream

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Encoder encodes an event for the wire. The dynamic type of an Encoder must be comparable. Equal encoders must return
// equal frames for the same event, because viewers with equal encoders share frames.
type Encoder interface {
	AppendFrame(dst []byte, topic string, event Event) []byte
}

// Frame is an encoded event. Viewers at the same position share a frame. Each holder must call Release once, after it has
// written the frame.
//
// A frame with a large text would take as much memory as the text, for as long as the reply is in memory. So such a frame
// lacks the text, and WriteTo encodes the text piece by piece.
type Frame struct {
	bytes []byte
	text  string // missing in bytes; "" if bytes is the whole frame
	at    int    // the offset of text in bytes
	refs  atomic.Int32
}

// largeText is the size, in bytes, of the largest text that a frame contains.
const largeText = 64 << 10

// Whole returns the frame, which the caller must not change. ok is false if the frame has a large text: then only WriteTo
// writes the whole frame.
func (f *Frame) Whole() (frame []byte, ok bool) { return f.bytes, f.text == "" }

// WriteTo writes the frame to w, in pieces of about MaxDelta bytes if it has a large text.
func (f *Frame) WriteTo(w io.Writer) (written int64, err error) {
	if whole, ok := f.Whole(); ok {
		n, err := w.Write(whole)
		return int64(n), err
	}
	write := func(b []byte) {
		if err == nil {
			var n int
			n, err = w.Write(b)
			written += int64(n)
		}
	}
	write(f.bytes[:f.at])
	text := unsafe.Slice(unsafe.StringData(f.text), len(f.text)) // the bytes never change
	for piece := []byte(nil); len(text) > 0 && err == nil; {
		n := prefix(text, MaxDelta)
		piece = AppendString(piece[:0], text[:n])
		write(piece[1 : len(piece)-1]) // without its quotes
		text = text[n:]
	}
	write(f.bytes[f.at:])
	return written, err
}

// maxPooledFrame is the maximum size of a buffer in framePool, in bytes. Larger frames are rare, so the pool would keep
// their buffers in memory for nothing.
const maxPooledFrame = 64 << 10

// firstFrame is the capacity of a new buffer, in bytes: enough for the frame of a token, which has about 190 bytes.
const firstFrame = 256

var framePool = sync.Pool{New: func() any { return &Frame{bytes: make([]byte, 0, firstFrame)} }}

func newFrame(topic string, event Event, encoder Encoder) *Frame {
	f := framePool.Get().(*Frame)
	f.refs.Store(1)
	f.text, f.at = "", 0
	if event.Ending == nil || event.Ending.Message == nil || len(event.Ending.Message.Content) <= largeText {
		f.bytes = encoder.AppendFrame(f.bytes[:0], topic, event)
		return f
	}
	m := *event.Ending.Message
	text := m.Content
	m.Content = ""
	ending := *event.Ending
	ending.Message, event.Ending = &m, &ending
	f.bytes = encoder.AppendFrame(f.bytes[:0], topic, event)
	if at := bytes.Index(f.bytes, m.Before); at >= 0 { // some encodings of an ending have no text
		f.text, f.at = text, at+len(m.Before)+len(`"`)
	}
	return f
}

// Release drops the holder's reference. The holder must not use the frame afterwards.
func (f *Frame) Release() {
	if f.refs.Add(-1) == 0 && cap(f.bytes) <= maxPooledFrame {
		framePool.Put(f)
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
