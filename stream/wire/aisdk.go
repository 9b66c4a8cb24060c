package wire

import (
	"cmp"
	"encoding/json"
	"strconv"

	"parley/stream"
)

// AISDKProtocol is the second WebSocket subprotocol: the frames of WebSocketChatTransport in npm's ai, 7.0.173 and
// newer, whose package documents and validates them. A frame from the server is start, chunk, end, error or
// no-active, and names the request that it answers; a chunk is one of the UI message stream. Any other frame closes
// the client's socket.
const AISDKProtocol = "ai-sdk.v7"

// AISDK encodes the events of one reply as the AI SDK's UI message stream: server-sent events without names, and
// [DONE] at the end. Events without a counterpart are left out. The view must begin with the reply.
type AISDK struct{}

// AISDKFrameEncoder encodes the events of one reply as frames of ai-sdk.v7 that answer one request. It numbers the
// chunks, so it serves one view, from the beginning of the reply, and one goroutine at a time.
type AISDKFrameEncoder struct {
	id       []byte // as a JSON string
	sequence int    // of the next chunk
}

// NewAISDKFrameEncoder returns an encoder for the answer to a request; requestID must be valid UTF-8.
func NewAISDKFrameEncoder(requestID string) AISDKFrameEncoder {
	return AISDKFrameEncoder{id: appendString(nil, []byte(requestID))}
}

// AISDKControlFrame is a frame that is not a chunk. ErrorText is only for an error.
type AISDKControlFrame struct {
	Type      string `json:"type"` // "start", "end", "error" or "no-active"
	RequestID string `json:"requestId"`
	ErrorText string `json:"errorText,omitempty"`
}

// chunk is the type of a chunk in the UI message stream.
type chunk uint8

const (
	chunkStart chunk = iota
	chunkTextStart
	chunkTextDelta
	chunkTextEnd
	chunkFinish
	chunkAbort
	chunkError
)

// The chunks of an event. A text starts with its first delta, so that a page can tell a reply whose model is still
// thinking from one that is being written.
var (
	chunksOfCreated = []chunk{chunkStart}
	chunksOfText    = []chunk{chunkTextStart, chunkTextDelta} // the first delta needs both
	chunksOfEnded   = map[stream.State][]chunk{               // the first only if there is a text
		stream.Completed:   {chunkTextEnd, chunkFinish},
		stream.Interrupted: {chunkTextEnd, chunkFinish},
		stream.Cancelled:   {chunkTextEnd, chunkAbort},
		stream.Failed:      {chunkTextEnd, chunkError},
	}
	chunksOfGone = []chunk{chunkError}
)

// goneTexts say why a reply will have no ending.
var goneTexts = map[stream.EventKind]string{
	stream.Cleared: "The session's history was cleared.",
	stream.Deleted: "The session was deleted.",
	stream.Expired: "The session has expired.",
}

// finishReasons maps the finish reasons of providers to those of the AI SDK. Any other becomes "other".
var finishReasons = map[string]string{
	"stop": "stop", "length": "length", "content_filter": "content-filter", "content-filter": "content-filter",
	"tool_calls": "tool-calls", "tool-calls": "tool-calls", "function_call": "tool-calls",
}

// chunksOf returns the chunks of an event; none if it has no counterpart.
func chunksOf(event stream.Event) []chunk {
	switch event.Kind {
	case stream.Created:
		return chunksOfCreated
	case stream.Delta:
		return chunksOfText[min(event.Offset, 1):]
	case stream.Ended:
		text, _ := event.Entry.Reply.Snapshot()
		return chunksOfEnded[event.Ending.State][1-min(len(text), 1):]
	case stream.Cleared, stream.Deleted, stream.Expired:
		return chunksOfGone
	}
	return nil
}

// appendChunk appends one chunk of an event.
func appendChunk(dst []byte, c chunk, event stream.Event) []byte {
	switch c {
	case chunkStart:
		return appendWithID(dst, `{"type":"start","messageId":"`, event)
	case chunkTextStart:
		return appendWithID(dst, `{"type":"text-start","id":"`, event)
	case chunkTextEnd:
		return appendWithID(dst, `{"type":"text-end","id":"`, event)
	case chunkTextDelta:
		dst = append(dst, `{"type":"text-delta","id":"`...)
		dst = append(dst, event.Entry.ID...)
		dst = append(dst, `","delta":`...)
		return append(appendString(dst, event.Delta), '}')
	case chunkFinish:
		dst = append(dst, `{"type":"finish","finishReason":"`...)
		return append(append(dst, finishReason(event.Ending)...), `"}`...)
	case chunkAbort:
		return append(dst, `{"type":"abort"}`...)
	default:
		dst = append(dst, `{"type":"error","errorText":`...)
		return append(appendString(dst, errorText(event)), '}')
	}
}

// appendWithID appends a chunk that ends with the id of the reply.
func appendWithID(dst []byte, before string, event stream.Event) []byte {
	dst = append(dst, before...)
	dst = append(dst, event.Entry.ID...)
	return append(dst, `"}`...)
}

// finishReason returns why a completed or interrupted reply ended, as the AI SDK calls it. It decodes the message,
// once a reply.
func finishReason(ending *stream.Ending) string {
	if ending.State == stream.Interrupted {
		return "interrupted"
	}
	var message struct {
		FinishReason string `json:"finishReason"`
	}
	_ = json.Unmarshal(ending.Message, &message) // encoded by the server
	return cmp.Or(finishReasons[message.FinishReason], "other")
}

// errorText returns the public text for a reply that failed or is gone. It decodes the error, once a reply.
func errorText(event stream.Event) []byte {
	if event.Kind != stream.Ended {
		return []byte(goneTexts[event.Kind])
	}
	var failure struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(event.Ending.Error, &failure) // encoded by the server
	return []byte(cmp.Or(failure.Message, "the reply failed"))
}

// AppendFrame implements stream.Encoder.
func (AISDK) AppendFrame(dst []byte, _ string, event stream.Event) []byte {
	for _, c := range chunksOf(event) {
		dst = append(dst, "data: "...)
		dst = appendChunk(dst, c, event)
		dst = append(dst, "\n\n"...)
		if c >= chunkFinish {
			dst = append(dst, "data: [DONE]\n\n"...)
		}
	}
	return dst
}

// AppendFrames appends the frames of an event, each followed by a newline, which no frame contains. The last event of
// a reply ends with the last frame of the request: end, or error.
func (r *AISDKFrameEncoder) AppendFrames(dst []byte, event stream.Event) []byte {
	for _, c := range chunksOf(event) {
		if c == chunkError {
			dst = r.appendType(dst, "error")
			dst = append(dst, `,"errorText":`...)
			dst = append(appendString(dst, errorText(event)), "}\n"...)
			continue
		}
		dst = r.appendType(dst, "chunk")
		dst = append(dst, `,"sequence":`...)
		dst = strconv.AppendInt(dst, int64(r.sequence), 10)
		dst = append(dst, `,"chunk":`...)
		dst = append(appendChunk(dst, c, event), "}\n"...)
		r.sequence++
		if c >= chunkFinish {
			dst = append(r.appendType(dst, "end"), "}\n"...)
		}
	}
	return dst
}

func (r *AISDKFrameEncoder) appendType(dst []byte, kind string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","requestId":`...)
	return append(dst, r.id...)
}
