package transport

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// ParseProxies parses a list of IP addresses and networks, such as "10.0.0.7" and "10.1.0.0/16".
func ParseProxies(list []string) ([]netip.Prefix, error) {
	proxies := make([]netip.Prefix, 0, len(list))
	for _, item := range list {
		network, err := parseNetwork(item)
		if err != nil {
			return nil, fmt.Errorf("invalid address %q: use an IP address or a network, for example 10.0.0.7 or 10.1.0.0/16", item)
		}
		proxies = append(proxies, network)
	}
	return proxies, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		network, err := netip.ParsePrefix(text)
		return network.Masked(), err
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("no address: %w", err)
	}
	address = address.Unmap()
	return netip.PrefixFrom(address, address.BitLen()), nil
}

// Client returns the IP address of the client that sent a request. If the peer of the connection is no trusted proxy, the peer
// is the client. Otherwise, the client is the last address in X-Forwarded-For that is no trusted proxy. Client reads
// X-Forwarded-For from its end. If it finds a malformed address or the beginning first, it returns the trusted proxy that it
// has read last. For a Unix socket, it returns the zero address.
func (c *Connections) Client(r *http.Request) netip.Addr {
	client, _ := parseAddress(r.RemoteAddr)
	if !c.trusts(client) {
		return client
	}
	hops := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	for c.trusts(client) {
		at := strings.LastIndexByte(hops, ',')
		hop, ok := parseAddress(strings.TrimSpace(hops[at+1:]))
		if !ok {
			break
		}
		client, hops = hop, hops[:max(at, 0)]
	}
	return client
}

// OverTLS reports whether the client sent the request over TLS, directly or to a proxy that sets X-Forwarded-Proto. A page in a
// browser cannot set this header.
func OverTLS(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}

// trusts reports whether an address is a trusted proxy.
func (c *Connections) trusts(address netip.Addr) bool {
	for _, network := range c.options.Proxies {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// parseAddress parses an IP address with or without a port. Some proxies write a port into X-Forwarded-For.
func parseAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		address = withPort.Addr()
	}
	return address.Unmap().WithZone(""), true
}

// networkOf returns the network that counts as one client: the address itself for IPv4, its /64 network for IPv6.
func networkOf(client netip.Addr) netip.Prefix {
	network, err := client.Prefix(min(client.BitLen(), 64))
	if err != nil {
		return netip.Prefix{} // the zero address
	}
	return network
}
