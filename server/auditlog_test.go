package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/server"
)

// auditLines collects log lines. Write and take may be called from any goroutine.
type auditLines struct {
	mu   sync.Mutex
	text bytes.Buffer
	all  bytes.Buffer // with the lines that take has returned

	awaited []string // lines that no call of await has removed; only await uses it
}

func (l *auditLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	return l.text.Write(b)
}

// take returns the audit lines since the last call, without time, level and message.
func (l *auditLines) take() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if _, attributes, found := strings.Cut(strings.TrimSpace(line), " msg=audit "); found {
			lines = append(lines, attributes)
		}
	}
	l.text.Reset()
	return lines
}

// await waits until a line has all the given parts. It removes this line, so that the next call can find the others in any order.
// One goroutine at a time may call await.
func (l *auditLines) await(t *testing.T, parts ...string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < testTimeout; time.Sleep(time.Millisecond) {
		l.awaited = append(l.awaited, l.take()...)
		if i := slices.IndexFunc(l.awaited, func(line string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		}); i >= 0 {
			l.awaited = slices.Delete(l.awaited, i, i+1)
			return
		}
	}
	t.Fatalf("no audit line has %q; the lines are %q", parts, l.awaited)
}

func TestAuditLog_RepeatedRefusals_OneLineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log auditLines
		a := server.NewAuditLog(slog.New(slog.NewTextHandler(&log, nil)))
		want := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			got := log.take()
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: the lines are %q, want %q", when, got, want)
			}
		}
		line := func(count int, address, prefix string) string {
			return fmt.Sprintf("event=authentication.refused count=%d credential=key address=%s prefix=%s", count, address, prefix)
		}
		one, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
		for range 100 {
			a.RefuseKey(one, "svc_live_aaaa")
		}
		a.RefuseKey(one, "svc_live_bbbb")
		want("at first", line(1, "192.0.2.1", "svc_live_aaaa"), line(1, "192.0.2.1", "svc_live_bbbb"))
		time.Sleep(30 * time.Second)
		a.RefuseKey(six, "svc_live_aaaa")
		a.RefuseKey(netip.MustParseAddr("2001:db8::2"), "svc_live_aaaa") // of the same /64 network
		want("after 30 s", line(1, "2001:db8::/64", "svc_live_aaaa"))
		time.Sleep(31 * time.Second)
		want("after 61 s", line(99, "192.0.2.1", "svc_live_aaaa"))
		time.Sleep(time.Minute)
		want("after 121 s", line(1, "2001:db8::/64", "svc_live_aaaa"))
		time.Sleep(time.Hour)
		want("an hour later")
		if n := a.Kinds(); n != 0 {
			t.Errorf("%d kinds of refusals are still in memory", n)
		}
		a.RefuseKey(one, "svc_live_aaaa")
		a.RefuseKey(one, "svc_live_aaaa")
		want("again", line(1, "192.0.2.1", "svc_live_aaaa"))
		a.Close()
		want("at the end", line(1, "192.0.2.1", "svc_live_aaaa"))
	})
}

func TestAuditLog_ManyAddresses_MemoryAndLinesBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log auditLines
		a := server.NewAuditLog(slog.New(slog.NewTextHandler(&log, nil)))
		for i := range 5_000 {
			a.RefuseKey(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), "svc_live_aaaa")
		}
		if n, lines := a.Kinds(), log.take(); n != 1_000 || len(lines) != 1_000 {
			t.Errorf("5,000 addresses take %d places and %d lines, want 1,000", n, len(lines))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lines := log.take(); !slices.Equal(lines, []string{"event=others.refused count=4000"}) {
			t.Errorf("after a minute, the lines are %q", lines)
		}
		a.Close()
	})
}

// metricsOf returns the lines of a server's metrics parley_NAME…_total, for each of the names.
func metricsOf(p *parley, names ...string) string {
	return strings.Join(regexp.MustCompile(`(?m)^parley_(`+strings.Join(names, "|")+`)_total.*$`).
		FindAllString(p.call("GET", "/metrics", nil, "Authorization", "").raw, -1), "\n")
}

func TestAuditLog_EachEvent_LineAndMetric(t *testing.T) {
	t.Parallel()
	var log auditLines
	p := start(t, echo, logTo(&log), withTiers(t, `{"pro":{"keys":3,"sockets":3}}`))
	first, admin := p.newKey("acme", auth.Live, auth.NewKey{Name: "first", Scopes: []auth.Scope{auth.Admin}})
	made := p.status(t, "create", admin, "POST", "/v1/keys", `{"name":"second","scopes":["read:messages"]}`, 200, "").body
	id, secret := made["keyId"].(string), made["key"].(string)
	who := " account=acme mode=live keyId=" + id + " actor=" + first.ID
	log.await(t, "event=key.created"+who)
	newest := p.status(t, "rotate", admin, "POST", "/v1/keys/"+id+"/rotate", nil, 200, "").body["key"].(string)
	log.await(t, "event=key.rotated"+who)

	p.status(t, "third key", admin, "POST", "/v1/keys", `{"name":"third","scopes":["admin"]}`, 200, "")
	p.status(t, "fourth key", admin, "POST", "/v1/keys", `{"name":"fourth","scopes":["admin"]}`, 429, "quota_exceeded")
	log.await(t, "event=quota.refused count=1 account=acme mode=live quota=keys")

	invalid := p.mustOpen(newest, "parley.v1")
	for range 10 {
		_ = invalid.Write(t.Context(), websocket.MessageText, []byte("{"))
	}
	log.await(t, "event=socket.closed cause=invalid_frames account=acme mode=live keyId="+id, "requestId=req_")
	_ = p.mustOpen(newest, "ai-sdk.v7").Write(t.Context(), websocket.MessageText, []byte(`"`+strings.Repeat("x", 2<<20)+`"`))
	log.await(t, "event=socket.closed cause=too_large account=acme")
	p.mustOpen(newest, "parley.v1")
	p.status(t, "revoke", admin, "DELETE", "/v1/keys/"+id, nil, 200, "")
	log.await(t, "event=key.revoked"+who)
	log.await(t, "event=socket.closed cause=key account=acme mode=live keyId="+id)

	p.status(t, "revoked", newest, "GET", "/v1/sessions", nil, 401, "invalid_token")
	log.await(t, "event=authentication.refused count=1 credential=key", "prefix="+newest[:13])
	p.call("GET", "/v1/sessions", nil, "Authorization", "Bearer sk-another-providers-secret-0123456789")
	p.call("GET", "/v1/sessions", nil, "Authorization", "")
	p.call("GET", "/v1/stream?ticket=wrong", nil, "Authorization", "")
	log.await(t, "event=authentication.refused count=1 credential=ticket")

	metrics := metricsOf(p, "key_operations", "authentication_failures", "quota_refusals", "sockets_closed")
	for _, want := range []string{
		`key_operations_total{action="key.created"} 2`, `key_operations_total{action="key.rotated"} 1`,
		`key_operations_total{action="key.revoked"} 1`, `authentication_failures_total{credential="key"} 2`,
		`authentication_failures_total{credential="none"} 1`, `authentication_failures_total{credential="ticket"} 1`,
		`quota_refusals_total{quota="keys"} 1`, `sockets_closed_total{cause="invalid_frames"} 1`,
		`sockets_closed_total{cause="too_large"} 1`, `sockets_closed_total{cause="key"} 1`,
	} {
		if !strings.Contains(metrics+"\n", "parley_"+want+"\n") {
			t.Errorf("the metrics have no %s:\n%s", want, metrics)
		}
	}
	for _, hidden := range []string{admin, secret, newest, "sk-another", "acme"} {
		if strings.Contains(metrics, hidden) || hidden != "acme" && strings.Contains(log.all.String(), hidden) {
			t.Errorf("the metrics or the log contain %q", hidden)
		}
	}
}
