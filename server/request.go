package server

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"parley/conversation"
)

// Bounds of requests (spec: Limits; design section 2, validation).
const (
	maxContent       = 10_000   // characters: Unicode code points
	maxMetadata      = 16 << 10 // bytes, as JSON
	minWindow        = 64       // tokens
	maxWindow        = 1_000_000
	defaultSessions  = 20 // of a page
	maxSessions      = 100
	defaultMessages  = 50
	maxMessages      = 100
	missing          = "is required"
	wrongMetadata    = "must be an object of at most 16 KiB as JSON"
	requiredJSONType = "application/json"
)

// decodeBody reads the request's JSON body into a struct, strictly. No body at all reads as an empty object.
func decodeBody(c *gin.Context, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return errTooLarge
		}
		return invalid("", "the body could not be read")
	}
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}) // the answer may take its time
	if len(body) == 0 {
		body = []byte("{}")
	} else if err := checkJSON(c.Request.Header); err != nil {
		return err
	}
	return decode(body, into)
}

// decode reads JSON into a struct, strictly: the one way in for bodies and frames.
func decode(body []byte, into any) error {
	if e := decodeStrict(body, into); e != nil {
		return invalid(e.Field, e.Reason)
	}
	return nil
}

// checkJSON checks that headers declare an uncompressed JSON body.
func checkJSON(h http.Header) error {
	if h.Get("Content-Encoding") != "" {
		return errCompressed
	}
	mediaType, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, ok := parameters["charset"]
	if err != nil || mediaType != requiredJSONType || ok && !strings.EqualFold(charset, "utf-8") {
		return errMediaType
	}
	return nil
}

// sessionID returns the session that the path names. A malformed id is like an unknown one, and so is one that
// the caller's ticket is not for.
func sessionID(c *gin.Context) (string, error) {
	id := c.Param("sessionId")
	if !conversation.ValidID(conversation.SessionPrefix, id) || !principal(c).MayAccess(id) {
		return "", conversation.ErrSessionNotFound
	}
	return id, nil
}

// messageID returns the session and the message that the path names.
func messageID(c *gin.Context) (session, message string, err error) {
	session, err = sessionID(c)
	if err != nil {
		return "", "", err
	}
	message = c.Param("messageId")
	if !conversation.ValidID(conversation.MessagePrefix, message) {
		return "", "", conversation.ErrMessageNotFound
	}
	return session, message, nil
}

// queryLimit returns the query's limit.
func queryLimit(c *gin.Context, byDefault, most int) (int, error) {
	text, ok := c.GetQuery("limit")
	if !ok {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// queryID returns an id from the query, "" if there is none.
func queryID(c *gin.Context, name, prefix string) (string, error) {
	id, ok := c.GetQuery(name)
	if ok && !conversation.ValidID(prefix, id) {
		return "", invalid(name, "must be "+prefix+" and 16 characters of [0-9A-Za-z]")
	}
	return id, nil
}

// newMessage checks what is to be sent: by a body, or by a frame.
func newMessage(session string, content *string, role, onBusy *string, metadata []byte) (conversation.NewMessage, error) {
	m := conversation.NewMessage{
		SessionID: session, Role: conversation.User, OnBusy: conversation.Enqueue, Metadata: metadata,
	}
	switch {
	case content == nil:
		return m, invalid("content", missing)
	case strings.TrimSpace(*content) == "":
		return m, invalid("content", "must not be empty, nor of spaces alone")
	case len(*content) > maxContent && utf8.RuneCountInString(*content) > maxContent:
		return m, invalid("content", "must have at most 10,000 characters")
	case !validMetadata(metadata):
		return m, invalid("metadata", wrongMetadata)
	}
	m.Content = *content
	if role != nil {
		m.Role = conversation.Role(*role)
		if m.Role != conversation.User && m.Role != conversation.System {
			return m, invalid("role", "must be user or system")
		}
	}
	if onBusy != nil {
		m.OnBusy = conversation.OnBusy(*onBusy)
		switch m.OnBusy {
		case conversation.Enqueue, conversation.Reject, conversation.Interrupt:
		default:
			return m, invalid("onBusy", "must be enqueue, reject or interrupt")
		}
	}
	return m, nil
}

// idempotency returns how a request is recognised if it is repeated: by its key, nil for none, and by what it asks for,
// whichever way it comes. name is what the key is called there.
func idempotency(name string, key *string, request any) (*conversation.Idempotency, error) {
	if key == nil {
		return nil, nil
	}
	if !sane(*key) {
		return nil, invalid(name, "must have 1 to 128 visible ASCII characters")
	}
	encoded, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	return &conversation.Idempotency{Key: *key, Digest: sha256.Sum256(encoded)}, nil
}

// headerKey returns the request's Idempotency-Key, nil for none.
func headerKey(c *gin.Context) *string {
	values := c.Request.Header.Values(headerIdempotencyKey)
	if len(values) == 0 {
		return nil
	}
	key := strings.Join(values, ", ") // more than one is no key, and is refused
	return &key
}

const (
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed"
)

// validMetadata reports whether metadata, valid JSON or none, is an object that is not too large.
func validMetadata(metadata []byte) bool {
	return len(metadata) == 0 || metadata[0] == '{' && len(metadata) <= maxMetadata
}
