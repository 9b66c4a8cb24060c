package api

import (
	"context"
	"net/http"
	"time"

	"parley/conversation"
	"parley/server/transport"
)

// retrySoon is the Retry-After of a 503: the store or a restarting node is usually back within a second, and a busy server ends
// sends all the time.
const retrySoon = time.Second

// CallerLeft is the cause of a 503 for a caller that has disconnected, or has closed its sending side and still reads.
const CallerLeft = "caller_left"

// unavailable maps errors to the cause and the text of a 503. The first row that matches applies. Every 503 of the server has one
// of these rows. The metric parley_unavailable_total counts the causes, and the guide on operation describes them.
var unavailable = []unavailableRow{
	{conversation.ErrInflightLimit, "inflight_limit", false, "The server has too many messages in progress. Try again."},
	{conversation.ErrInflightShare, "inflight_share", false, "Your account has too many messages in progress on this server. Try again when a reply has ended."},
	{conversation.ErrCancelPending, "cancel_pending", false, "The reply has not stopped yet, but it will. Repeat the request to wait for it."},
	{conversation.ErrDraining, "draining", false, "The server is stopping or restarting. Try again."},
	{transport.ErrFull, "connections", false, "The server has too many connections. Try again."},
	{transport.ErrClientFull, "client_connections", false, "Your address has too many connections to the server. Close some, then try again."},
	{ErrPagesBusy, "pages_busy", false, unread},
	{ErrUnread, "unread_responses", false, unread},
	{ErrModel, "model_unreachable", false, "The default model has not been found yet."},
	{conversation.ErrEndingNotStored, "ending_not_stored", true, tryAgain},
	{conversation.ErrReplyLost, "reply_lost", true, tryAgain},
	{conversation.ErrTurnUnknown, "turn_unknown", false, tryAgain},
	{conversation.ErrStoreFull, "store_full", true, "The server's disk is full. Reading and deleting still work. Try again later."},
	{conversation.ErrStoreMoved, "store_moved", true, "The file of the server's store was removed or replaced. Try again later."},
	{conversation.ErrStoreDamaged, "store_damaged", true, "The file of the server's store is damaged. Try again later."},
	{conversation.ErrStoreFailed, "store_failed", true, "The server cannot write its store. Try again later."},
	{conversation.ErrStoreBusy, "store_busy", true, tryAgain},
	{conversation.ErrStoreTimeout, "store_timeout", true, tryAgain},
	{conversation.ErrUnavailable, "store_error", true, tryAgain}, // the other errors of a store
	{context.Canceled, CallerLeft, false, "The connection was closed on your side before the request was finished. Try again."},
}

// tryAgain and unread are the messages of several rows.
const (
	tryAgain = "The service is temporarily unavailable. Try again."
	unread   = "Your account requests too many large responses at once, or does not read them. Read them, then try again."
)

type unavailableRow struct {
	is      error
	cause   string
	fault   bool // the server or its store is at fault
	message string
}

func (r unavailableRow) error() *Error {
	return &Error{
		Status: http.StatusServiceUnavailable, Code: "service_unavailable", Message: r.message, Cause: r.cause, RetryAfter: retrySoon,
	}
}

// Causes returns the causes of a 503.
func Causes() []string {
	causes := make([]string, len(unavailable))
	for i, row := range unavailable {
		causes[i] = row.cause
	}
	return causes
}
