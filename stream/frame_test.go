package stream

import (
	"bytes"
	"strings"
	"testing"
)

// plainEncoder encodes an ending as its message between brackets.
type plainEncoder struct{}

func (plainEncoder) AppendFrame(dst []byte, topic string, event Event) []byte {
	return append(event.Ending.Message.AppendJSON(append(dst, topic+"["...)), ']')
}

// silentEncoder encodes an ending without its message.
type silentEncoder struct{}

func (silentEncoder) AppendFrame(dst []byte, topic string, _ Event) []byte {
	return append(dst, topic...)
}

func TestWriteTo_LargeText_EncodedInPieces(t *testing.T) {
	for name, text := range map[string]string{
		"small": "a\"b", "just not large": strings.Repeat("x", largeText), "just large": strings.Repeat("x", largeText+1),
		"escapes and wide characters": strings.Repeat("ä\n🙂\"\\\x01", largeText),
	} {
		m := Document{Before: []byte(`{"messageId":"m1","content":`), Content: text, After: []byte(`,"status":"completed"}`)}
		event := Event{Kind: Ended, Ending: &Ending{Message: &m}}
		f := newFrame("s", event, plainEncoder{})
		var written bytes.Buffer
		n, err := f.WriteTo(&written)
		if want := "s[" + string(m.AppendJSON(nil)) + "]"; written.String() != want || err != nil || n != int64(len(want)) {
			t.Errorf("%s: wrote %d bytes, %v; want the same %d bytes as for a small text", name, n, err, len(want))
		}
		if whole, ok := f.Whole(); ok != (len(text) <= largeText) || !ok && len(whole) > 100 {
			t.Errorf("%s: the frame holds %d bytes, whole %t", name, len(whole), ok)
		}
		f.Release()
		written.Reset()
		if _, err := newFrame("s", event, silentEncoder{}).WriteTo(&written); err != nil || written.String() != "s" {
			t.Errorf("%s: a frame without the message is %q, %v", name, written.String(), err)
		}
	}
}
