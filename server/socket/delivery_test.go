package socket

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"

	"parley/stream"
)

// counted is the server's side of a connection. While discard is set, it counts the writes and discards their bytes.
type counted struct {
	net.Conn
	discard *atomic.Bool
	writes  *atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	if c.discard.Load() {
		c.writes.Add(1)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// audience is a number of sockets that view the same reply.
type audience struct {
	size    int
	reply   *stream.Reply
	discard atomic.Bool
	writes  atomic.Int64 // since the last token
}

// newAudience returns an audience with size sockets. Each of them has got all frames before the first delta.
func newAudience(t testing.TB, size int) *audience {
	a := &audience{size: size, reply: stream.NewReply("msg_0123456789abcdef")}
	var e *emptyConversation
	h := newHost(t, func(o *Options) { e = o.Conversation.(*emptyConversation) })
	h.wrap = func(c net.Conn) net.Conn { return &counted{c, &a.discard, &a.writes} }
	topic := e.hub.Open(aSession)
	t.Cleanup(topic.Close)
	topic.Publish("", &stream.Entry{ID: a.reply.ID, Created: []byte("{}"), Reply: a.reply})
	for range size {
		s := h.dialRaw()
		s.next()
		if err := s.write(opText, []byte(`{"type":"subscribe","sessionId":"`+aSession+`"}`)); err != nil {
			t.Fatal(err)
		}
		s.next()
		s.next() // message.created
	}
	a.discard.Store(true)
	return a
}

// deliver appends a token to the reply and waits until each socket has written it.
func (a *audience) deliver() {
	a.writes.Store(0)
	a.reply.Append([]byte("token "))
	for a.writes.Load() < int64(a.size) {
		runtime.Gosched()
	}
}

func TestDelivery_AllocatesNothing(t *testing.T) {
	a := newAudience(t, 10)
	for range 3000 { // so that the text rarely grows during the measurement
		a.deliver()
	}
	each := testing.AllocsPerRun(300, a.deliver) / float64(a.size)
	t.Logf("%.3f allocations for each frame", each)
	if each > 0.5 { // the race detector empties pools at random
		t.Errorf("%.3f allocations for each frame, want none", each)
	}
}

func BenchmarkDelivery(b *testing.B) {
	a := newAudience(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		a.deliver()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(a.size), "ns/delivery")
}
