package transport

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestClient_EachHeader_LastUntrustedAddress(t *testing.T) {
	c := New(Options{Proxies: proxies(t, "10.0.0.7", "10.1.0.0/16", "fd00::/8", "::ffff:10.3.0.1")})
	for name, test := range map[string]struct {
		peer      string
		forwarded []string
		want      string
	}{
		"no proxy":                             {"192.0.2.1:40000", nil, "192.0.2.1"},
		"untrusted peer forges the header":     {"192.0.2.1:40000", []string{"203.0.113.9"}, "192.0.2.1"},
		"one proxy":                            {"10.0.0.7:40000", []string{"192.0.2.1"}, "192.0.2.1"},
		"client forges an address":             {"10.0.0.7:40000", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		"client forges a trusted address":      {"10.0.0.7:40000", []string{"10.0.0.7,192.0.2.1"}, "192.0.2.1"},
		"two proxies":                          {"10.0.0.7:40000", []string{"192.0.2.1, 10.1.2.3"}, "192.0.2.1"},
		"proxies add a header each":            {"10.0.0.7:40000", []string{"192.0.2.1", "10.1.2.3"}, "192.0.2.1"},
		"proxy with IPv6":                      {"[fd00::1]:40000", []string{"2001:db8::1"}, "2001:db8::1"},
		"peer is IPv4 in IPv6":                 {"[::ffff:10.0.0.7]:40000", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		"network is IPv4 in IPv6":              {"10.3.0.1:40000", []string{"192.0.2.1"}, "192.0.2.1"},
		"addresses with ports":                 {"10.0.0.7:40000", []string{"192.0.2.1:1234, [fd00::2]:80"}, "192.0.2.1"},
		"no header from the proxy":             {"10.0.0.7:40000", nil, "10.0.0.7"},
		"malformed address":                    {"10.0.0.7:40000", []string{"192.0.2.1, unknown"}, "10.0.0.7"},
		"malformed address before a good one":  {"10.0.0.7:40000", []string{"unknown, 192.0.2.1"}, "192.0.2.1"},
		"empty last item":                      {"10.0.0.7:40000", []string{"192.0.2.1,"}, "10.0.0.7"},
		"all addresses are trusted":            {"10.0.0.7:40000", []string{"10.1.0.1, 10.1.0.2"}, "10.1.0.1"},
		"Unix socket":                          {"@", []string{"192.0.2.1"}, "invalid IP"},
		"100,000 trusted addresses in a claim": {"10.0.0.7:40000", []string{strings.Repeat("10.1.0.1,", 100_000) + "192.0.2.1"}, "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{RemoteAddr: test.peer, Header: http.Header{"X-Forwarded-For": test.forwarded}}
			if got := c.Client(r).String(); got != test.want {
				t.Errorf("the client is %s, want %s", got, test.want)
			}
		})
	}
}

func TestParseProxies_MalformedItem_ErrorNamesItem(t *testing.T) {
	for _, item := range []string{"", "proxy.example", "10.0.0.0/33", "10.0.0.7:80", "fe80::1%eth0"} {
		if _, err := ParseProxies([]string{"10.0.0.7", item}); err == nil || !strings.Contains(err.Error(), `"`+item+`"`) {
			t.Errorf("%q: %v", item, err)
		}
	}
}

func TestNetworkOf_IPv6AddressesOfOneSlash64_SameNetwork(t *testing.T) {
	for _, test := range []struct{ address, want string }{
		{"192.0.2.1", "192.0.2.1/32"}, {"2001:db8:0:1::1", "2001:db8:0:1::/64"}, {"2001:db8:0:1:ffff::9", "2001:db8:0:1::/64"},
	} {
		if got := networkOf(netip.MustParseAddr(test.address)).String(); got != test.want {
			t.Errorf("the network of %s is %s, want %s", test.address, got, test.want)
		}
	}
}

func TestOverTLS_ForwardedProto_TrueOnlyForHTTPS(t *testing.T) {
	for proto, want := range map[string]bool{"https": true, "http": false, "": false} {
		if got := OverTLS(&http.Request{Header: http.Header{"X-Forwarded-Proto": {proto}}}); got != want {
			t.Errorf("X-Forwarded-Proto %q: %v, want %v", proto, got, want)
		}
	}
}
