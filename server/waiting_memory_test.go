package server_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"parley/conversation"
)

// maxWaiting is the largest memory of a send that waits in the queue of its session, with its connection, in bytes.
const maxWaiting = 40 << 10

// The clients use plain connections, because a client of net/http would take more memory than the server. The figure contains the
// clients' ends of the connections, about 1 KiB each.
func TestQueuedSend_Waiting_MemoryUnder40KiB(t *testing.T) {
	model := newDirected()
	option, queued := notifyQueued()
	p := start(t, model, option)
	const sessions, each = 10, conversation.QueuePlaces
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
	before := used()
	body := fmt.Sprintf(`{"content":%q}`, strings.Repeat("A question of a hundred words. ", 20))
	for _, id := range ids {
		request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: parley\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			messages(id), adminKey, len(body), body)
		for range each {
			c, err := p.dialNet(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range sessions * each {
		within(t, "a send to be queued", queued)
	}
	bytes := (used() - before) / (sessions * each)
	t.Logf("a waiting send takes %d bytes", bytes)
	if bytes > memoryFactor*maxWaiting {
		t.Errorf("a waiting send takes %d bytes, want at most %d", bytes, maxWaiting)
	}
}
