package turn

import (
	"context"
	"unicode/utf8"

	"parley/stream"
)

// boundedTo returns model with a limit on the text of a reply: room, in our tokens. A room of 0 is no limit. The request to a model
// that reasons has a larger limit, which the model could spend on text. In a window without summaries, a text that is longer than
// the reply room could make the session refuse each later send.
func boundedTo(room int, model stream.Model, count func(string) int) stream.Model {
	if room == 0 {
		return model
	}
	return bounded{model, room, count}
}

type bounded struct {
	stream.Model
	room  int
	count func(string) int
}

// Generate implements stream.Model. It closes the request when the text exceeds the room. The finish reason is then "length".
func (b bounded) Generate(ctx context.Context, request stream.Request, write func([]byte)) (stream.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	text := measure{left: b.room, count: b.count}
	result, err := b.Model.Generate(ctx, request, func(piece []byte) {
		if text.full {
			return
		}
		write(text.fitting(piece))
		if text.full {
			cancel()
		}
	})
	if text.full {
		result.FinishReason, err = stream.FinishLength, nil
	}
	return result, err
}

// measure counts the tokens of a text that arrives in pieces. A token has at least one byte. So measure counts only when the bytes
// since the last count exceed the tokens that are left: about 30 times for 4,096 tokens, and each byte once. The parts may have a
// few tokens more than the whole, so a text may end early: by about 10 of 1,024 tokens.
type measure struct {
	left  int    // number of tokens that the text may still have after the last count
	since []byte // the text since the last count; never more bytes than left
	count func(string) int
	full  bool // the text was cut off
}

// fitting returns the part of the next piece that fits. It cuts at the end of a character.
func (m *measure) fitting(piece []byte) []byte {
	rest := piece
	for len(rest) > 0 && !m.full {
		if len(rest) > m.left-len(m.since) {
			m.left = max(0, m.left-m.count(string(m.since)))
			m.since = m.since[:0]
		}
		n := min(len(rest), m.left-len(m.since))
		for n > 0 && n < len(rest) && !utf8.RuneStart(rest[n]) {
			n--
		}
		m.since, rest, m.full = append(m.since, rest[:n]...), rest[n:], n == 0
	}
	return piece[:len(piece)-len(rest)]
}
