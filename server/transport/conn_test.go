package transport

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWrite_ClientDoesNotRead_CutAfterStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := New(Options{})
		bounded := c.add(server)
		began := time.Now()
		n, err := bounded.Write(make([]byte, 1<<20))
		if took := time.Since(began); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || took != Stall {
			t.Errorf("the write returned %d, %v after %v", n, err, took)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || c.Open() != 0 || c.Stalled() != 1 {
			t.Errorf("the client got %v; %d connections are open, %d were cut", err, c.Open(), c.Stalled())
		}
	})
}

func TestWrite_ClientReadsSlowly_NotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		bounded := New(Options{}).add(server)
		read := make(chan struct{})
		go func() {
			defer close(read)
			for piece := make([]byte, writePiece); ; time.Sleep(Stall - time.Second) {
				if _, err := io.ReadFull(client, piece); err != nil {
					return
				}
			}
		}()
		if n, err := bounded.Write(make([]byte, 10*writePiece)); n != 10*writePiece || err != nil {
			t.Errorf("the write returned %d, %v", n, err)
		}
		_ = bounded.Close()
		<-read
	})
}

// Within Stall, the client reads fewer bytes than writePiece, so it makes no progress.
func TestWrite_ClientReadsOneByteASecond_CutAfterStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		bounded := New(Options{}).add(server)
		read := make(chan struct{})
		go func() {
			defer close(read)
			for one := make([]byte, 1); ; time.Sleep(time.Second) {
				if _, err := client.Read(one); err != nil {
					return
				}
			}
		}()
		began := time.Now()
		_, err := bounded.Write(make([]byte, 2*writePiece))
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != Stall {
			t.Errorf("the write returned %v after %v", err, took)
		}
		_ = client.Close()
		<-read
	})
}

// deadlines counts the deadlines of writes that are set on a connection.
type deadlines struct {
	net.Conn
	set int
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set++
	return d.Conn.SetWriteDeadline(t)
}

func TestWrite_Often_OneDeadlinePerQuarterOfStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		counted := &deadlines{Conn: server}
		bounded := New(Options{}).add(counted)
		read := make(chan struct{})
		go func() { defer close(read); _, _ = io.Copy(io.Discard, client) }()
		for range 4 * 60 { // a minute, so 8 quarters of Stall
			if _, err := bounded.Write([]byte("token")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(250 * time.Millisecond)
		}
		if counted.set != 8 {
			t.Errorf("%d deadlines were set in 2 * Stall, want 8", counted.set)
		}
		_ = bounded.Close()
		<-read
	})
}

// The second write begins with the deadline of the first one, and still has its own Stall.
func TestWrite_ClientStopsReading_CutStallAfterItsLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := New(Options{})
		bounded := c.add(server)
		go func() { _, _ = io.ReadFull(client, make([]byte, 5)) }()
		if _, err := bounded.Write([]byte("token")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(renewAfter - time.Second)
		began := time.Now()
		n, err := bounded.Write([]byte("token"))
		if took := time.Since(began); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || took != Stall || c.Stalled() != 1 {
			t.Errorf("the write returned %d, %v after %v; %d connections were cut", n, err, took, c.Stalled())
		}
	})
}

func TestServer_60ClientsReadNothing_ConnectionsCutWithin35s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		document := strings.Repeat("x", 200_000)
		h := newHost(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, document) })
		for range 60 {
			client := h.dial("192.0.2.1")
			go func() {
				_, _ = io.WriteString(client, strings.Repeat("GET /docs HTTP/1.1\r\nHost: parley\r\n\r\n", 100))
			}()
		}
		synctest.Wait()
		if n := h.Open(); n != 60 {
			t.Fatalf("%d connections are open, want 60", n)
		}
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if n := h.Open(); n != 0 {
			t.Errorf("%d connections are open after 35 s", n)
		}
	})
}

// The kernel's send buffer would grow to 4 MiB without a limit.
func TestAdd_TCP_SendBufferBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := New(Options{}).Listener(inner)
	defer listener.Close()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	unread, chunk := 0, make([]byte, 4096)
	for err == nil && unread < 8<<20 { // an attempt that takes 200 ms means that the buffers are full
		var n int
		_ = server.(*conn).Conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		n, err = server.(*conn).Conn.Write(chunk)
		unread += n
	}
	t.Logf("the kernel took %d bytes", unread)
	limit := 2*sendBuffer + 128<<10 // until the client reads, its receive buffer has at most 128 KiB
	if runtime.GOOS == "linux" {
		limit = 192 << 10
	}
	if unread > limit {
		t.Errorf("the kernel took %d bytes for a client that does not read, want at most %d", unread, limit)
	}
}

func TestRefusal_SilentClient_ClosedAfterRefusalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *host
		h = newHost(t, Options{Max: 1}, admitting(&h))
		h.dial("192.0.2.1")
		silent := h.dial("192.0.2.2")
		began := time.Now()
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the client got %v", err)
		}
		if took := time.Since(began); took != refusalTime {
			t.Errorf("the connection was open for %v, want %v", took, refusalTime)
		}
	})
}
