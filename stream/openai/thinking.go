package openai

import "bytes"

// Many local models write their reasoning into the text of the reply, as a block at its beginning. Servers move the block to a field
// of its own only if they are configured for the model.
const (
	thinkBegin = "<think>"
	thinkEnd   = "</think>"

	// maxBlank is the maximum size, in bytes, of white space before a block. A reply with more begins with white space.
	maxBlank = 256
)

// thinking cuts the block <think>…</think> off the beginning of a reply's text. White space around the block belongs to it. The tags
// may be split over several pieces of text, and the end of the block may be missing.
//
//	state   the text so far                               held
//	begin   white space and a part of <think>             that text
//	inside  <think> and a part of the block               up to 7 bytes, a part of </think>
//	blank   the block, and white space after it           nothing
//	over    anything else: no further text is examined    nothing
type thinking struct {
	over   bool
	inside bool
	blank  bool
	held   []byte
}

// cut returns the part of the next piece of text that belongs to the reply. reasoned reports whether the piece has reasoning.
func (t *thinking) cut(piece []byte) (text []byte, reasoned bool) {
	if len(piece) == 0 || t.over {
		return piece, false
	}
	if len(t.held) > 0 {
		piece = append(t.held, piece...)
		t.held = nil
	}
	if !t.inside && !t.blank {
		trimmed := bytes.TrimLeft(piece, " \t\r\n")
		rest, begun := bytes.CutPrefix(trimmed, []byte(thinkBegin))
		switch blank := len(piece) - len(trimmed); {
		case blank <= maxBlank && begun:
			t.inside, piece = true, rest
		case blank <= maxBlank && bytes.HasPrefix([]byte(thinkBegin), trimmed):
			t.held = bytes.Clone(piece)
			return nil, false
		default:
			t.over = true
			return piece, false
		}
	}
	if t.inside {
		reasoned = true
		block, rest, ended := bytes.Cut(piece, []byte(thinkEnd))
		if !ended {
			t.held = bytes.Clone(block[max(0, len(block)-len(thinkEnd)+1):])
			return nil, true
		}
		t.inside, t.blank, piece = false, true, rest
	}
	if text = bytes.TrimLeft(piece, " \t\r\n"); len(text) > 0 {
		t.over = true
	}
	return text, reasoned
}

// end returns text that cut holds back although the reply has ended: it is no block.
func (t *thinking) end() []byte {
	if t.inside {
		return nil
	}
	return t.held
}
