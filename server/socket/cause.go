package socket

import (
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/coder/websocket"

	"parley/stream/wire"
)

// causes holds the name of the cause for each close code, for the audit log and the metrics. A drain is not the fault of a
// client, so it has no cause.
var causes = map[wire.CloseCode]string{
	wire.CloseBinary: "binary", wire.CloseInvalidUTF8: "invalid_utf8", wire.CloseInvalidFrames: "invalid_frames",
	wire.CloseTooLarge: "too_large", wire.CloseUnauthorized: "key", wire.CloseTimeout: "timeout",
	wire.CloseTooManyConnections: "too_many",
}

// slow is the cause if the client did not read for transport.Stall. Such a client gets no close code.
const slow = "slow"

// Causes returns the names of the causes for which the server closes sockets, for Audit.SocketClosed.
func Causes() []string { return append(slices.Sorted(maps.Values(causes)), slow) }

// recordClose records why the server closes the connection. Only the first cause counts. cause is "" if there is nothing to
// record.
func (c *connection) recordClose(cause string) {
	if cause != "" {
		c.recorded.Do(func() { c.registry.Audit.SocketClosed(c.Handshake, cause) })
	}
}

// causeOf returns the cause that an error of a read or a write implies, or "".
func causeOf(err error) string {
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return causes[wire.CloseTooLarge]
	case errors.Is(err, os.ErrDeadlineExceeded):
		return slow
	}
	return ""
}
