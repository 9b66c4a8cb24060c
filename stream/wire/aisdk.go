package wire

import (
	"cmp"
	"encoding/json"
	"strconv"

	"parley/stream"
)

// AISDKProtocol is a WebSocket subprotocol for the class WebSocketChatTransport of the npm package ai, version 7.0.173 or
// newer. That package documents and validates the frames. A frame from the server has the type start, chunk, end, error or
// no-active, and contains the id of the request. A chunk frame contains a chunk of the UI message stream. The client closes
// its socket if it gets any other frame.
const AISDKProtocol = "ai-sdk.v7"

// AISDK encodes the events of one reply as the AI SDK's UI message stream: server-sent events without names, and [DONE]
// at the end. It omits events that the AI SDK does not know. The viewer must start at the beginning of the reply.
type AISDK struct{}

// AISDKFrameEncoder encodes the events of one reply as ai-sdk.v7 frames, in response to one request. It numbers the
// chunks, so each viewer needs a new encoder, and must start at the beginning of the reply. Only one goroutine at a time
// may use an encoder.
type AISDKFrameEncoder struct {
	id       []byte // the id of the request, as a JSON string
	sequence int    // number of the next chunk, from 0
}

// NewAISDKFrameEncoder returns an encoder for the response to a request. requestID must be valid UTF-8.
func NewAISDKFrameEncoder(requestID string) AISDKFrameEncoder {
	return AISDKFrameEncoder{id: stream.AppendString(nil, []byte(requestID))}
}

// AISDKControlFrame is a frame without a chunk. Only a frame of the type error has an ErrorText.
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

// The chunks of each kind of event. text-start comes with the first delta, so that a page can show when the model begins to
// write.
var (
	chunksOfCreated = []chunk{chunkStart}
	chunksOfText    = []chunk{chunkTextStart, chunkTextDelta} // chunkTextStart only for the first delta of the reply
	chunksOfEnded   = map[stream.State][]chunk{               // chunkTextEnd only if the reply has text
		stream.Completed:   {chunkTextEnd, chunkFinish},
		stream.Interrupted: {chunkTextEnd, chunkFinish},
		stream.Cancelled:   {chunkTextEnd, chunkAbort},
		stream.Failed:      {chunkTextEnd, chunkError},
	}
	chunksOfGone = []chunk{chunkError}
)

// goneTexts are the error texts for the events that take the place of Ended.
var goneTexts = map[stream.EventKind]string{
	stream.Cleared: "The session's history was cleared.",
	stream.Deleted: "The session was deleted.",
	stream.Expired: "The session has expired.",
}

// finishReasons maps the finish reasons of providers to the finish reasons of the AI SDK. Any other reason becomes "other".
var finishReasons = map[string]string{
	"stop": "stop", "length": "length", "content_filter": "content-filter", "content-filter": "content-filter",
	"tool_calls": "tool-calls", "tool-calls": "tool-calls", "function_call": "tool-calls",
}

// chunksOf returns the chunks for an event, or nil if the AI SDK does not know the event.
func chunksOf(event stream.Event) []chunk {
	switch event.Kind {
	case stream.Created:
		return chunksOfCreated
	case stream.Delta:
		return chunksOfText[min(event.Offset, 1):]
	case stream.Ended:
		size, _ := event.Entry.Reply.Size()
		return chunksOfEnded[event.Ending.State][1-min(size, 1):]
	case stream.Cleared, stream.Deleted, stream.Expired:
		return chunksOfGone
	}
	return nil
}

// appendChunk appends one chunk of an event as JSON.
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
		return append(stream.AppendString(dst, event.Delta), '}')
	case chunkFinish:
		dst = append(dst, `{"type":"finish","finishReason":"`...)
		return append(append(dst, finishReason(event.Ending)...), `"}`...)
	case chunkAbort:
		return append(dst, `{"type":"abort"}`...)
	default:
		dst = append(dst, `{"type":"error","errorText":`...)
		return append(stream.AppendString(dst, errorText(event)), '}')
	}
}

// appendWithID appends a chunk that consists of the JSON before, the id of the reply, and the end of the JSON.
func appendWithID(dst []byte, before string, event stream.Event) []byte {
	dst = append(dst, before...)
	dst = append(dst, event.Entry.ID...)
	return append(dst, `"}`...)
}

// finishReason returns the AI SDK's finish reason for a completed or interrupted reply. It decodes the final message without
// its text, which is cheap enough, because a reply ends once.
func finishReason(ending *stream.Ending) string {
	if ending.State == stream.Interrupted {
		return "interrupted"
	}
	var message struct {
		FinishReason string `json:"finishReason"`
	}
	rest := stream.Document{Before: ending.Message.Before, After: ending.Message.After}
	_ = json.Unmarshal(rest.AppendJSON(nil), &message) // cannot fail: the server encoded it
	return cmp.Or(finishReasons[message.FinishReason], "other")
}

// errorText returns the public error text for a reply that failed, or that was removed before it ended.
func errorText(event stream.Event) []byte {
	if event.Kind != stream.Ended {
		return []byte(goneTexts[event.Kind])
	}
	var failure struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(event.Ending.Error, &failure) // cannot fail: the server encoded it
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

// AppendFrames appends the frames of an event. A newline follows each frame, and no frame contains a newline. For the last
// event of a reply, the last frame is end or error, which ends the response to the request.
func (r *AISDKFrameEncoder) AppendFrames(dst []byte, event stream.Event) []byte {
	for _, c := range chunksOf(event) {
		if c == chunkError {
			dst = r.appendType(dst, "error")
			dst = append(dst, `,"errorText":`...)
			dst = append(stream.AppendString(dst, errorText(event)), "}\n"...)
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
