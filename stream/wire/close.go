package wire

// CloseCode is a WebSocket close code. Each code has a text in closeReasons. A code 44xx has the meaning of HTTP status
// 4xx.
type CloseCode int

// The reasons for which the server closes a socket.
const (
	CloseBinary             CloseCode = 1003 // a binary frame
	CloseInvalidUTF8        CloseCode = 1007 // a text frame that is not valid UTF-8
	CloseInvalidFrames      CloseCode = 1008 // MaxInvalidFrames invalid frames in a row
	CloseTooLarge           CloseCode = 1009 // a frame over MaxFrame
	CloseDraining           CloseCode = 1012 // the node is shutting down; reconnect
	CloseUnauthorized       CloseCode = 4401 // the key was revoked or has expired
	CloseNoHeartbeat        CloseCode = 4408 // two pings in a row without a pong
	CloseTooManyConnections CloseCode = 4429 // too many connections
)

var closeReasons = map[CloseCode]string{
	CloseBinary:             "binary frames are not supported",
	CloseInvalidUTF8:        "a text frame is not valid UTF-8",
	CloseInvalidFrames:      "too many invalid frames in a row",
	CloseTooLarge:           "the frame is too large",
	CloseDraining:           "the server is shutting down; reconnect",
	CloseUnauthorized:       "the key was revoked or has expired",
	CloseNoHeartbeat:        "no pong received for two pings",
	CloseTooManyConnections: "too many connections",
}

// Reason returns the text that is sent with the code.
func (c CloseCode) Reason() string { return closeReasons[c] }

// Limits of a connection.
const (
	MaxFrame         = 1 << 20 // bytes of a client's frame, the same as for the body of a request
	MaxInvalidFrames = 10      // in a row; a valid frame resets the count
)
