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

// Proxy stands before a server and injects faults. Its methods are for the goroutine of the test.
type Proxy struct {
	URL  string // of the store, through the proxy
	Addr string // host:port

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// NewProxy returns a proxy before the server of that address that lets all pass.
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

// Connect takes connections again, at the same address, after a Cut.
func (p *Proxy) Connect() {
	p.t.Helper()
	if err := p.proxy.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.Addr = p.proxy.Listen
	p.URL = "redis://" + p.Addr
}

// Delay has each reply come so many milliseconds late.
func (p *Proxy) Delay(milliseconds int) { p.add("latency", "latency", milliseconds) }

// LoseReplies lets commands pass, but not their replies; a connection is closed after so many milliseconds, or never, for
// 0.
func (p *Proxy) LoseReplies(milliseconds int) { p.add("timeout", "timeout", milliseconds) }

// Throttle lets that many kilobytes of replies pass a second.
func (p *Proxy) Throttle(kilobytes int) { p.add("bandwidth", "rate", kilobytes) }

func (p *Proxy) add(toxic, attribute string, n int) {
	p.t.Helper()
	description := fmt.Sprintf(`{"type":%q,"attributes":{%q:%d}}`, toxic, attribute, n)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(description)); err != nil {
		p.t.Fatal(err)
	}
}

// Heal takes all faults away.
func (p *Proxy) Heal() { p.proxy.Toxics.ResetToxics(context.Background()) }
