package socket

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"parley/server/api"
	"parley/stream/wire"
)

// ticketPrefix marks the subprotocol item that carries a ticket.
const ticketPrefix = "ticket."

// protocols are the subprotocols. If a client offers both, the first is chosen.
var protocols = []string{wire.Protocol, wire.AISDKProtocol}

// Offers are the items of Sec-WebSocket-Protocol: subprotocols, and perhaps a ticket. A browser can set no other header.
type Offers []string

// ParseOffers returns what a handshake offers.
func ParseOffers(h http.Header) (offers Offers) {
	for _, line := range h.Values("Sec-WebSocket-Protocol") {
		for item := range strings.SplitSeq(line, ",") {
			offers = append(offers, strings.TrimSpace(item))
		}
	}
	return offers
}

// Ticket returns the ticket among the offers, the last if there are several.
func (o Offers) Ticket() (ticket string, offered bool) {
	for _, item := range o {
		if text, ok := strings.CutPrefix(item, ticketPrefix); ok {
			ticket, offered = text, true
		}
	}
	return ticket, offered
}

// CheckHandshake checks everything that the WebSocket library would otherwise refuse with errors of its own. origins are
// those of other sites whose pages may connect.
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

// originAllowed reports whether a page of the request's origin may connect: our own, or a configured one. A request
// without an Origin does not come from a browser, so there is no page to protect the user from.
func originAllowed(r *http.Request, origins []string) bool {
	if len(r.Header.Values("Origin")) > 1 {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}
