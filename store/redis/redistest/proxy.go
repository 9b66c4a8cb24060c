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

// Proxy stands in front of a server and injects faults. Its methods must be called from the goroutine of the test.
type Proxy struct {
	URL  string // of the store, through the proxy
	Addr string // host:port

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewProxy returns a proxy in front of the server at addr. It passes everything on.
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

// Connect accepts connections again, at the same address, after Cut.
func (p *Proxy) Connect() {
	p.t.Helper()
	if err := p.proxy.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.Addr = p.proxy.Listen
	p.URL = "redis://" + p.Addr
}

// Delay delays each reply.
func (p *Proxy) Delay(milliseconds int) { p.add("latency", "latency", milliseconds) }

// LoseReplies passes commands on, but not their replies. It closes a connection after that many milliseconds; for 0, never.
func (p *Proxy) LoseReplies(milliseconds int) { p.add("timeout", "timeout", milliseconds) }

func (p *Proxy) add(toxic, attribute string, n int) {
	p.t.Helper()
	description := fmt.Sprintf(`{"type":%q,"attributes":{%q:%d}}`, toxic, attribute, n)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(description)); err != nil {
		p.t.Fatal(err)
	}
}

// Heal removes all faults.
func (p *Proxy) Heal() { p.proxy.Toxics.ResetToxics(context.Background()) }
