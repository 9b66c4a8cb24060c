package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/stream/wire"
)

// ticketItem is how a ticket is offered as a subprotocol.
const ticketItem = "ticket."

// protocols are the subprotocols, that which is chosen where both are offered first.
var protocols = []string{wire.Protocol, wire.AISDKProtocol}

// openSocket is GET /v1/stream: the handshake of parley.v1 (design section 4), and of ai-sdk.v7. Everything that can be refused is
// refused before the upgrade, with the one error body.
func (s *Server) openSocket(c *gin.Context) (any, error) {
	offers := offered(c.Request.Header)
	p, err := s.verifyHandshake(c, offers)
	if err != nil {
		return nil, s.unauthenticated(c, err)
	}
	return s.admitting(c, p, func(c *gin.Context) (any, error) {
		if err := s.checkHandshake(c.Request, offers); err != nil {
			return nil, err
		}
		if s.draining.Load() {
			return nil, conversation.ErrDraining
		}
		if err := s.Keys.Admit(c.Request.Context()); err != nil {
			return nil, err
		}
		s.showStanding(c) // on the 101 too
		s.upgrade(c, p)
		return nil, nil
	})
}

// upgrade opens the socket.
func (s *Server) upgrade(c *gin.Context, p auth.Principal) {
	hijacked := &smallBuffers{ResponseWriter: c.Writer}
	conn, err := websocket.Accept(hijacked, c.Request, &websocket.AcceptOptions{
		Subprotocols:       protocols,
		InsecureSkipVerify: true, // the origin was checked, with our own error
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		s.Log.Debug("a handshake failed", "requestId", c.GetString(keyRequestID), "error", err)
		return // the library has answered
	}
	conn.SetReadLimit(wire.MaxFrame)
	var speaks dialect = parleyV1{} // also where none was offered
	if conn.Subprotocol() == wire.AISDKProtocol {
		speaks = new(aiSDK)
	}
	newSocket(s, p, c.GetString(keyRequestID), speaks).start(conn, hijacked.conn) // in goroutines of its own: the handler's stack and buffers are freed
}

// offered returns the subprotocols that a handshake offers.
func offered(h http.Header) []string {
	var offers []string
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for item := range strings.SplitSeq(line, ",") {
			offers = append(offers, strings.TrimSpace(item))
		}
	}
	return offers
}

// verifyHandshake returns who connects: by key in the header, or by ticket of a key that still works.
func (s *Server) verifyHandshake(c *gin.Context, offers []string) (auth.Principal, error) {
	if authorises(c.Request.Header) {
		return s.verify(c)
	}
	ticket := c.Query("ticket")
	for _, item := range offers {
		if text, ok := strings.CutPrefix(item, ticketItem); ok {
			ticket = text
		}
	}
	p, err := s.Tickets.Redeem(c.Request.Context(), ticket)
	if err != nil {
		return p, err
	}
	return p, s.Keys.Revalidate(c.Request.Context(), p)
}

// checkHandshake checks what the WebSocket library would refuse in its own words.
func (s *Server) checkHandshake(r *http.Request, offers []string) error {
	if !s.originAllowed(r) {
		return errOrigin
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || !hasToken(r.Header, "Connection", "upgrade") {
		return &apiError{
			status: http.StatusUpgradeRequired, code: "validation_error", field: "Upgrade", reason: "must be websocket",
			message: "This route is a WebSocket: it needs the headers Connection: Upgrade and Upgrade: websocket.",
		}
	}
	if r.Header.Get("Sec-WebSocket-Version") != "13" {
		return invalid("Sec-WebSocket-Version", "must be 13")
	}
	if key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key")); err != nil || len(key) != 16 {
		return invalid("Sec-WebSocket-Key", "must be 16 bytes in base64")
	}
	known := func(protocol string) bool { return slices.Contains(protocols, protocol) }
	if len(offers) > 0 && !slices.ContainsFunc(offers, known) {
		return invalid("Sec-WebSocket-Protocol", "must offer "+strings.Join(protocols, " or "))
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for item := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(item), token) {
				return true
			}
		}
	}
	return false
}

// originAllowed reports whether a page of the request's origin may connect: our own, or a configured one. What sends
// no Origin is no browser.
func (s *Server) originAllowed(r *http.Request) bool {
	if len(r.Header.Values("Origin")) > 1 {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// smallBuffers gives a hijacked connection buffers that an idle socket can afford: net/http's are 4 KiB each. Large
// frames do not pass through them.
type smallBuffers struct {
	gin.ResponseWriter
	conn net.Conn // set by Hijack
}

const (
	readBuffer  = 512
	writeBuffer = 1 << 10
)

// Hijack implements http.Hijacker.
func (w *smallBuffers) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.ResponseWriter.Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	_ = conn.SetDeadline(time.Time{})
	patient := &deadlineConn{Conn: conn}
	w.conn = patient
	reader := bufio.NewReaderSize(patient, readBuffer)
	if len(early) > 0 {
		// They have to be in the buffer: the library keeps what is buffered, and else reads the connection itself.
		reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), patient), max(readBuffer, len(early)))
		_, _ = reader.Peek(len(early))
	}
	return patient, bufio.NewReadWriter(reader, bufio.NewWriterSize(patient, writeBuffer)), nil
}

// deadlineConn drops a connection on which a write makes no progress: each piece of pieceSize bytes has writeWait.
type deadlineConn struct{ net.Conn }

const pieceSize = 16 << 10

func (c *deadlineConn) Write(b []byte) (n int, err error) {
	for {
		piece := b[n:min(len(b), n+pieceSize)]
		if err := c.SetWriteDeadline(time.Now().Add(writeWait)); err != nil {
			return n, err
		}
		m, err := c.Conn.Write(piece)
		n += m
		if err != nil || n == len(b) {
			return n, err
		}
	}
}
