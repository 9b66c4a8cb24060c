package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Proxy is a proxy to a server. It can inject faults. Its methods must be called from the goroutine of the test.
type Proxy struct {
	URL  string // URL of a store on the server, through the proxy
	Addr string // host:port

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewProxy starts a proxy to the server at addr, without faults. The proxy stops with the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &Proxy{t: t, proxy: toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", addr)}
	p.Connect()
	t.Cleanup(p.Cut)
	return p
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() { p.proxy.Stop() }

// Connect ends the effect of Cut: the proxy accepts connections again, at the same address.
func (p *Proxy) Connect() {
	p.t.Helper()
	if err := p.proxy.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.Addr = p.proxy.Listen
	p.URL = "redis://" + p.Addr
}

// Delay delays each reply of the server by that number of milliseconds.
func (p *Proxy) Delay(milliseconds int) { p.add("latency", "latency", milliseconds) }

// LoseReplies drops the server's replies, but still forwards commands. Each connection is closed after that number of
// milliseconds; 0 means never.
func (p *Proxy) LoseReplies(milliseconds int) { p.add("timeout", "timeout", milliseconds) }

func (p *Proxy) add(toxic, attribute string, n int) {
	p.t.Helper()
	description := fmt.Sprintf(`{"type":%q,"attributes":{%q:%d}}`, toxic, attribute, n)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(description)); err != nil {
		p.t.Fatal(err)
	}
}

// Heal removes the faults of Delay and LoseReplies.
func (p *Proxy) Heal() { p.proxy.Toxics.ResetToxics(context.Background()) }
