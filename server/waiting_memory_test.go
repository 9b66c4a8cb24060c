package server_test

import (
	"fmt"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"

	"parley/conversation"
)

// maxWaiting is the maximum memory, in bytes, of a send that waits in the queue of its session, including its
// connection.
const maxWaiting = 40 << 10

// The clients use plain connections, because a client of net/http would take more memory than the server. The figure contains the
// clients' ends of the connections, about 1 KiB each.
func TestQueuedSend_Waiting_MemoryUnder40KiB(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	const sessions, each = 24, conversation.QueuePlaces
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = p.session()
		p.begin(ids[i], "the reply that the others wait for")
		model.next(t)
	}
	p.client.CloseIdleConnections()
	used := func() int64 {
		h := heap()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return h + int64(m.StackInuse)
	}
	clients := make([]net.Conn, 0, sessions*each)
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	fill := func(sessions []string) {
		for _, id := range sessions {
			for range each {
				clients = append(clients, p.sendRaw(id, strings.Repeat("A question of a hundred words. ", 20)))
			}
		}
		for range len(sessions) * each {
			within(t, "a send to be queued", queued)
		}
	}
	const warm, round = 4, 5
	fill(ids[:warm]) // opens the connections to Redis
	bytes := int64(math.MaxInt64)
	// bytes becomes the least of four rounds, because other goroutines only add memory.
	for rest := ids[warm:]; len(rest) > 0; rest = rest[round:] {
		before := used()
		fill(rest[:round])
		bytes = min(bytes, (used()-before)/round/each)
	}
	t.Logf("a waiting send takes %d bytes", bytes)
	if bytes > memoryFactor*maxWaiting {
		t.Errorf("a waiting send takes %d bytes, want at most %d", bytes, maxWaiting)
	}
}

// sendRaw sends a message over a new connection, which it returns. It does not read the response.
func (p *parley) sendRaw(session, text string) net.Conn {
	p.t.Helper()
	c, err := p.dialNet(p.t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"content":%q}`, text)
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		messages(session), adminKey, len(body), body); err != nil {
		p.t.Fatal(err)
	}
	return c
}
