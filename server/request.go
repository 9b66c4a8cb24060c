package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"parley/auth"
	"parley/conversation"
	"parley/server/api"
)

const (
	// maxBody is the largest request body, in bytes. It is several times larger than a message with 10,000 characters and 16
	// KiB of metadata.
	maxBody = 1 << 20
	// bodyTimeout is the time within which a request's body must arrive. 30 s suffice for 1 MiB over a mobile network. A
	// client that stops sending cannot occupy a connection for longer.
	bodyTimeout = 30 * time.Second

	// minWindow and maxWindow bound contextConfig.maxTokens. A window of less than 64 tokens is too small even for a short
	// prompt and its reply.
	minWindow = 64
	maxWindow = 1_000_000

	defaultSessions = 20 // sessions on a page, if the query has no limit
	maxSessions     = 100
	defaultMessages = 50 // messages on a page, if the query has no limit
	maxMessages     = 100
	defaultKeys     = 50 // keys, or audit entries, on a page, if the query has no limit
	maxKeys         = 100

	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed"
)

// decodeBody decodes the request's JSON body strictly into a struct. A missing body counts as an empty object.
func decodeBody(c *gin.Context, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return api.ErrTooLarge
		}
		return api.Invalid("", "the body could not be read")
	}
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Time{}) // the deadline was for the body only
	if len(body) == 0 {
		body = []byte("{}")
	} else if err := checkJSON(c.Request.Header); err != nil {
		return err
	}
	return api.Decode(body, into)
}

// checkJSON checks that the headers declare an uncompressed JSON body in UTF-8.
func checkJSON(h http.Header) error {
	if h.Get("Content-Encoding") != "" {
		return api.ErrCompressed
	}
	mediaType, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, ok := parameters["charset"]
	if err != nil || mediaType != "application/json" || ok && !strings.EqualFold(charset, "utf-8") {
		return api.ErrMediaType
	}
	return nil
}

// sessionID returns the id of the session in the path. A malformed id, or a session that the principal may not access, gives
// the same error as an unknown session. So a caller cannot find out which sessions exist.
func sessionID(c *gin.Context) (string, error) {
	id := c.Param("sessionId")
	if !conversation.ValidID(conversation.SessionPrefix, id) || !principal(c).MayAccess(id) {
		return "", conversation.ErrSessionNotFound
	}
	return id, nil
}

// countForNamed makes the request also count for a user: the user of the session in the path, or the user in the query of a list
// of sessions. It runs before the request is checked. Otherwise, a user could use up the account's limit with invalid requests.
func countForNamed(c *gin.Context) {
	if id := c.Param("sessionId"); id != "" {
		if conversation.ValidID(conversation.SessionPrefix, id) && principal(c).MayAccess(id) {
			countFor(c, id)
		}
	} else if c.FullPath() == "/v1/sessions" && c.Request.URL.RawQuery != "" {
		if id := c.Query("userId"); conversation.ValidID(conversation.UserPrefix, id) {
			countFor(c, id)
		}
	}
}

// countFor makes the request also count for a user. id is the id of the user or of one of the user's sessions, and must be
// well-formed. Call countFor before the first operation of the store.
func countFor(c *gin.Context, id string) {
	if a := auth.AdmissionOf(c.Request.Context()); a != nil {
		a.Subject = id
	}
}

// messageID returns the ids of the session and of the message in the path.
func messageID(c *gin.Context) (session, message string, err error) {
	session, err = sessionID(c)
	if err != nil {
		return "", "", err
	}
	message = c.Param("messageId")
	if !api.ValidMessageID(message) {
		return "", "", conversation.ErrMessageNotFound
	}
	return session, message, nil
}

// queryLimit returns the page size in the query, which must be from 1 to most. If the query has no limit, it returns
// byDefault.
func queryLimit(c *gin.Context, byDefault, most int) (int, error) {
	text, ok := c.GetQuery("limit")
	if !ok {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, api.Invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", most))
	}
	return n, nil
}

// queryID returns the id in a query parameter; "" if the parameter is missing.
func queryID(c *gin.Context, name, prefix string) (string, error) {
	id, ok := c.GetQuery(name)
	if ok && !conversation.ValidID(prefix, id) {
		return "", api.Invalid(name, mustBeID(prefix))
	}
	return id, nil
}

// mustBeID returns the reason in the validation error for a malformed id.
func mustBeID(prefix string) string { return "must be " + prefix + " and 16 characters of [0-9A-Za-z]" }

// headerKey returns the request's Idempotency-Key; nil if it has none.
func headerKey(c *gin.Context) *string {
	values := c.Request.Header.Values(headerIdempotencyKey)
	if len(values) == 0 {
		return nil
	}
	key := strings.Join(values, ", ") // strict has refused a repeated header; api.ValidToken rejects the space anyway
	return &key
}
