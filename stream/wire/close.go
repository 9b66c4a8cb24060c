package wire

// CloseCode is a WebSocket close code. A code 44xx has the meaning of the HTTP status 4xx.
type CloseCode int

// The close codes that the server uses. Each of them has a text in closeReasons and a row in server/docs/asyncapi.yaml.
// TestDocs_EveryCode_Explained lists them too, and looks for the rows on the page /docs.
const (
	CloseBinary             CloseCode = 1003 // a binary frame
	CloseInvalidUTF8        CloseCode = 1007 // a text frame that is not valid UTF-8
	CloseInvalidFrames      CloseCode = 1008 // MaxInvalidFrames invalid frames in a row
	CloseTooLarge           CloseCode = 1009 // a frame larger than MaxFrame
	CloseDraining           CloseCode = 1012 // the node is shutting down; the client should reconnect
	CloseUnauthorized       CloseCode = 4401 // the key was revoked or has expired
	CloseTimeout            CloseCode = 4408 // two pings in a row without a pong, or a message that was not complete after 30 s
	CloseTooManyConnections CloseCode = 4429 // too many connections
)

var closeReasons = map[CloseCode]string{
	CloseBinary:             "binary frames are not supported",
	CloseInvalidUTF8:        "a text frame is not valid UTF-8",
	CloseInvalidFrames:      "too many invalid frames in a row",
	CloseTooLarge:           "the frame is too large",
	CloseDraining:           "the server is shutting down; reconnect",
	CloseUnauthorized:       "the key was revoked or has expired",
	CloseTimeout:            "timeout: no pong for two pings, or a message that was not complete after 30 s",
	CloseTooManyConnections: "too many connections",
}

// Reason returns the text that a close frame contains beside the code.
func (c CloseCode) Reason() string { return closeReasons[c] }

// Limits of a connection.
const (
	MaxFrame         = 1 << 20 // maximum size of a client's frame in bytes; the body of a REST request has the same limit
	MaxInvalidFrames = 10      // after this many invalid frames in a row, the server closes the socket
)
