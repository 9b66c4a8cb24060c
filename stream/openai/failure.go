package openai

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"parley/stream"
)

// The public messages of failures. They contain no text from the provider, because such text may quote prompts, keys and
// paths.
const (
	messageUnreachable = "the model cannot be reached"
	messageCredentials = "the model's provider refused the server's credentials"
	messageTooLong     = "the conversation is too long for the model"
	messageUnknown     = "the model's provider does not know the model"
	messageBusy        = "the model's provider is overloaded or limits this server's requests"
	messageQuota       = "the model's provider refused the request: the server's quota is used up"
	messageDown        = "the model's provider failed"
	messageRefused     = "the model's provider refused the request"
	messageBrokeOff    = "the model's response broke off"
	messageNoAnswer    = "the model's provider sent an empty response"
	messageUnreadable  = "the model's response could not be read"
	messageTooLarge    = "the model's response was too large"
	messageFailed      = "the model failed during its response"
)

// cause is the reason for a failure, for the log. It contains a text of this package, an HTTP status and an identifier, but
// no other text from the provider.
type cause struct {
	what   string        // a text of this package
	status int           // HTTP status of the response; 0 if there was no response
	kind   string        // the provider's code or type for the error; "" if neither is an identifier
	err    error         // an error of this package, or a result of [sanitise]
	retry  bool          // a retry may succeed
	after  time.Duration // the delay that the provider requested; 0 if it requested none
}

func (c *cause) Error() string {
	var parts []string
	if c.what != "" {
		parts = append(parts, c.what)
	}
	if c.status != 0 {
		parts = append(parts, fmt.Sprintf("status %d", c.status))
	}
	if c.kind != "" {
		parts = append(parts, c.kind)
	}
	if c.err != nil {
		parts = append(parts, c.err.Error())
	}
	return strings.Join(parts, ", ")
}

func (c *cause) Unwrap() error { return c.err }

func failure(message string, c *cause) *stream.ModelError {
	return &stream.ModelError{Code: stream.CodeProviderError, Message: message, Cause: c}
}

// unreachable returns the error for a request that got no response. err is the error of net/http.
func unreachable(err error) error {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return failure(messageUnreachable, &cause{err: sanitise(err), retry: !untrusted})
}

// refused returns the error for a response whose status is not 200. body is the body of the response, and err is the error that the
// library parsed from it.
func refused(response *http.Response, body []byte, err error) error {
	c := &cause{status: response.StatusCode}
	var code string
	if apiError, ok := errors.AsType[*openai.APIError](err); ok {
		code, _ = apiError.Code.(string)
		c.kind = firstIdentifier(code, apiError.Type)
	}
	if size, ok := overflowOf(body); ok {
		return tooLong(c, size)
	}
	message := messageRefused
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		message = messageCredentials
	case status == http.StatusNotFound:
		message = messageUnknown
	case c.kind == "insufficient_quota":
		message = messageQuota
	case status == http.StatusTooManyRequests:
		message, c.retry = messageBusy, true
	case status == http.StatusRequestTimeout, status >= 500:
		message, c.retry = messageDown, true
	}
	if c.after = retryAfter(response.Header.Get("Retry-After"), time.Now()); c.after > maxRetryAfter {
		c.retry = false
	}
	return failure(message, c)
}

// Doubtful reports whether the failure of a reply makes it doubtful that the server and the model can be used. A failure that the
// request itself may have caused does not: the request is too long, or the status of its refusal is 4xx. The key and the name of the
// model are not of the request, so 401, 403 and 404 do; and a server that waits in vain for a request (408) may be broken.
func Doubtful(err error) bool {
	failed, ok := errors.AsType[*stream.ModelError](err)
	if !ok || failed.Code == stream.CodeContextTooLong {
		return false
	}
	c, ok := errors.AsType[*cause](err)
	if !ok {
		return true
	}
	switch c.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout:
		return true
	}
	return c.status < 400 || c.status > 499
}

// reported returns the error for a response with status 200 that contains an error. data is the whole event. answered reports
// whether the reply has text; then a shorter prompt cannot help.
func reported(data []byte, answered bool) error {
	var sent struct {
		Error struct{ Type, Code any }
	}
	_ = json.Unmarshal(data, &sent) // the field may have any form; sent then stays empty
	kind, _ := sent.Error.Type.(string)
	code, _ := sent.Error.Code.(string)
	c := &cause{what: "an error within the answer", kind: firstIdentifier(code, kind)}
	if status, ok := sent.Error.Code.(float64); ok && status >= 100 && status <= 999 {
		c.status = int(status)
	}
	if size, ok := overflowOf(data); ok && !answered {
		return tooLong(c, size)
	} else if ok {
		return failure(messageTooLong, c)
	}
	return failure(messageFailed, c)
}

// firstIdentifier returns the first word that is an identifier, or "" if no word is. An identifier is too short and too
// restricted to quote a prompt or a key.
func firstIdentifier(words ...string) string {
	for _, w := range words {
		if isIdentifier(w) {
			return w
		}
	}
	return ""
}

func isIdentifier(w string) bool {
	for _, b := range []byte(w) {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return w != "" && len(w) <= 64
}

// retryAfter parses a Retry-After header, which contains a number of seconds or a date. It returns 0 if the header is empty
// or invalid, or if the date has passed.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseFloat(header, 64); err == nil {
		if !(seconds > 0) {
			return 0
		}
		return time.Duration(min(seconds, 1e6) * float64(time.Second))
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

var (
	errTimeout     = errors.New("timed out")
	errNoHost      = errors.New("no such host")
	errCertificate = errors.New("certificate not trusted")
	errBroken      = errors.New("connection broken")
)

// sanitise replaces an error of net/http by an error without text from the server. Errors of net/http may quote malformed
// headers and the response of a proxy.
func sanitise(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errNoHost
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errCertificate
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, io.EOF} {
		if errors.Is(err, known) {
			return known
		}
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errTimeout
	}
	return errBroken
}
