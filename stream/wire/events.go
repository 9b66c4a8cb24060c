package wire

import (
	"strconv"
	"unicode/utf8"

	"parley/stream"
)

// Protocol is the WebSocket subprotocol of the frames in this package.
const Protocol = "parley.v1"

// JSON encodes events as frames of parley.v1.
type JSON struct{}

// SSE encodes events as server-sent events. The data is the frame of parley.v1, the event name is the type of the frame,
// and the id is the cursor.
type SSE struct{}

// eventTypes are the types of the frames for all kinds of events except Ended. The type for Ended depends on the state of
// the reply.
var eventTypes = [...]string{
	stream.Created:           "message.created",
	stream.Delta:             "message.delta",
	stream.Cleared:           "session.cleared",
	stream.Deleted:           "session.deleted",
	stream.Expired:           "session.expired",
	stream.ContextSummarised: "context.compressed",
	stream.Reasoning:         "reply.reasoning",
}

// appendType appends the type of an event's frame.
func appendType(dst []byte, event stream.Event) []byte {
	if event.Kind == stream.Ended {
		dst = append(dst, "message."...)
		return append(dst, event.Ending.State...)
	}
	return append(dst, eventTypes[event.Kind]...)
}

// AppendFrame implements stream.Encoder.
func (JSON) AppendFrame(dst []byte, topic string, event stream.Event) []byte {
	dst = append(dst, `{"type":"`...)
	dst = appendType(dst, event)
	dst = append(dst, `","sessionId":"`...)
	dst = append(dst, topic...)
	dst = append(dst, '"')
	switch event.Kind {
	case stream.Created:
		dst = append(dst, `,"message":`...)
		dst = append(dst, event.Entry.Created...)
	case stream.Delta: // the AI SDK's form of a delta is in aisdk.go; the Go client decodes this one in stream/client
		dst = append(dst, `,"messageId":"`...)
		dst = append(dst, event.Entry.ID...)
		dst = append(dst, `","offset":`...)
		dst = strconv.AppendInt(dst, int64(event.Offset), 10)
		dst = append(dst, `,"delta":`...)
		dst = stream.AppendString(dst, event.Delta)
	case stream.Ended:
		dst = append(dst, `,"message":`...)
		dst = event.Ending.Message.AppendJSON(dst)
		if event.Ending.Error != nil {
			dst = append(dst, `,"error":`...)
			dst = append(dst, event.Ending.Error...)
		}
	case stream.Reasoning:
		dst = append(dst, `,"messageId":"`...)
		dst = append(dst, event.Entry.ID...)
		return append(dst, `"}`...)
	case stream.ContextSummarised:
		return append(appendSummaryStats(dst, event.Summary), '}')
	default: // session.* events are not part of history, so they have no cursor
		return append(dst, '}')
	}
	dst = append(dst, `,"cursor":"`...)
	dst = AppendCursor(dst, topic, event.After)
	return append(dst, `"}`...)
}

func appendSummaryStats(dst []byte, c *stream.SummaryStats) []byte {
	for _, field := range []struct {
		name  string
		value int
	}{
		{`,"summarised":`, c.Summarised}, {`,"dropped":`, c.Dropped}, {`,"tokensBefore":`, c.TokensBefore}, {`,"tokensAfter":`, c.TokensAfter},
	} {
		dst = strconv.AppendInt(append(dst, field.name...), int64(field.value), 10)
	}
	return dst
}

// AppendFrame implements stream.Encoder.
func (SSE) AppendFrame(dst []byte, topic string, event stream.Event) []byte {
	dst = append(dst, "event: "...)
	dst = appendType(dst, event)
	dst = append(dst, "\nid: "...)
	dst = AppendCursor(dst, topic, event.After)
	dst = append(dst, "\ndata: "...)
	dst = JSON{}.AppendFrame(dst, topic, event)
	return append(dst, "\n\n"...)
}

// ValidText reports whether a text frame is valid UTF-8. The WebSocket protocol requires valid UTF-8, but the WebSocket
// library does not check it.
func ValidText(frame []byte) bool { return utf8.Valid(frame) }
