package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
)

// handler serves a request. It returns an error, or a value that handle writes as JSON. If it has written the response
// itself, it returns nil, nil.
type handler func(c *gin.Context) (any, error)

// keyRequestID is the name under which a gin context stores the request's id.
const keyRequestID = "parley.requestId"

// These are values of headers that most responses have. All responses share them, and nothing changes them.
var (
	noStore  = []string{"no-store"}
	noSniff  = []string{"nosniff"}
	jsonType = []string{"application/json; charset=utf-8"}
	// dataPolicy is the Content-Security-Policy of a response that is no page. A browser that displays the response loads and runs
	// nothing, and no page can frame it.
	dataPolicy = []string{"default-src 'none'; frame-ancestors 'none'"}
)

// identify is middleware that gives a request its id: the client's X-Request-Id if it is valid, otherwise a random one. It also
// sets the deadline for the body, and the security headers of a response that is no page. Pages replace them (see web.Guard).
func (s *Server) identify(c *gin.Context) {
	id := c.GetHeader("X-Request-Id")
	if !api.ValidToken(id) {
		id = "req_" + conversation.RandomText(16)
	}
	c.Set(keyRequestID, id)
	c.Header("X-Request-Id", id)
	h := c.Writer.Header()
	h["X-Content-Type-Options"], h["Content-Security-Policy"] = noSniff, dataPolicy
	if c.Request.ContentLength != 0 { // decodeBody removes the deadline when it has read the body
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
}

// recover is middleware that turns a panic into a 500 and a log line.
func (s *Server) recover(c *gin.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if err, ok := r.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			panic(r)
		}
		s.Log.Error("handler panicked", "route", c.FullPath(), "requestId", c.GetString(keyRequestID), "panic", r, "stack", string(debug.Stack()))
		if !c.Writer.Written() {
			s.writeError(c, api.Internal())
		}
		c.Abort()
	}()
	c.Next()
}

// handle converts h to a gin handler, which writes the value or the error of h as JSON.
func (s *Server) handle(h handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer endPage(c) // for a panic; otherwise, writeBounded has already called endPage
		value, err := h(c)
		if err != nil {
			s.writeRefusal(c, err)
			return
		}
		if value != nil {
			s.writeJSON(c, http.StatusOK, value)
		}
	}
}

// writeRefusal writes err as the caller sees it. It records a refusal by a quota, and the cause of a 503. If the server
// is at fault, it logs err, with the request's id.
func (s *Server) writeRefusal(c *gin.Context, err error) {
	if refused, ok := errors.AsType[*auth.QuotaError](err); ok {
		s.audit.QuotaRefused(principal(c), refused)
	}
	e, fault := api.Describe(err)
	switch {
	case e.Status == http.StatusServiceUnavailable:
		s.unavailable.Record(e.Cause, err, fault, "method", c.Request.Method, "route", c.FullPath(), "requestId", c.GetString(keyRequestID))
	case fault:
		s.Log.Error("request failed", "method", c.Request.Method, "route", c.FullPath(),
			"requestId", c.GetString(keyRequestID), "error", err)
	}
	s.writeError(c, e)
}

func (s *Server) writeJSON(c *gin.Context, status int, value any) {
	body := encodeJSON(value)
	s.writeBounded(c, len(body), func() {
		h := c.Writer.Header()
		h["Cache-Control"], h["Content-Type"] = noStore, jsonType
		if len(body) > smallBody {
			h.Set("Content-Length", strconv.Itoa(len(body)))
		}
		c.Status(status)
		_, _ = c.Writer.Write(body) // an error means that the client has left
	})
}

// smallBody is the size, in bytes, of the largest body for which net/http itself adds the Content-Length. Without this header,
// most responses have eight headers, the most that a Go map holds without growing.
const smallBody = 2048

// encodeJSON returns value as JSON. The text of a message may be large, so a message is encoded without a second buffer.
func encodeJSON(value any) []byte {
	if m, ok := value.(conversation.Message); ok {
		return append(m.Document().AppendJSON(nil), '\n')
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // impossible: value has one of our own types
	}
	return body.Bytes()
}

func (s *Server) writeError(c *gin.Context, e *api.Error) {
	if e.Decision != nil {
		setLimitHeaders(c.Writer.Header(), *e.Decision)
	}
	if e.RetryAfter > 0 {
		c.Header("Retry-After", strconv.FormatInt(api.Seconds(e.RetryAfter), 10))
	}
	if e.Allow != "" {
		c.Header("Allow", e.Allow)
	}
	switch e.Status {
	case http.StatusUnauthorized:
		c.Header("WWW-Authenticate", "Bearer")
	case http.StatusUpgradeRequired:
		c.Header("Connection", "Upgrade")
		c.Header("Upgrade", "websocket")
	}
	s.writeJSON(c, e.Status, map[string]any{"error": e.Body(), "meta": api.NewMeta(c.GetString(keyRequestID))})
}
