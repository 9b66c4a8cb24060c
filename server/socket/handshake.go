package socket

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"parley/server/api"
	"parley/server/transport"
	"parley/stream/wire"
)

// ticketPrefix is the prefix of an item of Sec-WebSocket-Protocol that holds a ticket.
const ticketPrefix = "ticket."

// protocols lists the subprotocols. If a client offers both, the server selects the first in this list.
var protocols = []string{wire.Protocol, wire.AISDKProtocol}

// Offers are the items of Sec-WebSocket-Protocol: subprotocols, and perhaps a ticket. The ticket is there because a page can
// set no other header of a handshake.
type Offers []string

// ParseOffers returns the items of all Sec-WebSocket-Protocol headers.
func ParseOffers(h http.Header) (offers Offers) {
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for item := range strings.SplitSeq(line, ",") {
			offers = append(offers, strings.TrimSpace(item))
		}
	}
	return offers
}

// Ticket returns the ticket in the offers; the last one if there are several.
func (o Offers) Ticket() (ticket string, offered bool) {
	for _, item := range o {
		if text, ok := strings.CutPrefix(item, ticketPrefix); ok {
			ticket, offered = text, true
		}
	}
	return ticket, offered
}

// CheckHandshake makes all checks that the WebSocket library would otherwise make with its own error texts. Pages of the
// server's own origin and of the given origins may connect. The error is an [api.Error] or [api.ErrOrigin].
func CheckHandshake(r *http.Request, offers Offers, origins []string) error {
	if !originAllowed(r, origins) {
		return api.ErrOrigin
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || !hasToken(r.Header, "Connection", "upgrade") {
		return &api.Error{
			Status: http.StatusUpgradeRequired, Code: api.CodeValidation, Field: "Upgrade", Reason: "must be websocket",
			Message: "This route is a WebSocket. Send the headers Connection: Upgrade and Upgrade: websocket.",
		}
	}
	if r.Header.Get("Sec-WebSocket-Version") != "13" {
		return api.Invalid("Sec-WebSocket-Version", "must be 13")
	}
	if key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key")); err != nil || len(key) != 16 {
		return api.Invalid("Sec-WebSocket-Key", "must be 16 bytes in base64")
	}
	known := func(protocol string) bool { return slices.Contains(protocols, protocol) }
	if len(offers) > 0 && !slices.ContainsFunc(offers, known) {
		return api.Invalid("Sec-WebSocket-Protocol", "must include "+strings.Join(protocols, " or "))
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

// originAllowed reports whether the request's origin may connect: the server's own origin, or one in origins. A request
// without an Origin header is allowed, because it does not come from a page in a browser.
func originAllowed(r *http.Request, origins []string) bool {
	if len(r.Header.Values("Origin")) > 1 {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return false
	}
	// Anybody in the network can change a page that came over http. Such a page must not open a socket of an https site. The
	// reverse is harmless, and usual behind a proxy that does not set X-Forwarded-Proto.
	return u.Scheme == "https" || u.Scheme == "http" && !transport.OverTLS(r)
}
