package openai

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"testing"
)

// silentServer accepts connections. It reads the request of each connection, sends the beginning of a response, and keeps the
// connection open. It uses no goroutine for a connection.
type silentServer struct {
	net.Listener
	conns []net.Conn // owned by serve until it returns
}

// serve accepts n connections.
func (s *silentServer) serve(n int) error {
	const event = `data: {"choices":[{"index":0,"delta":{"content":"token"},"finish_reason":null}]}` + "\n\n"
	for range n {
		c, err := s.Accept()
		if err != nil {
			return err
		}
		s.conns = append(s.conns, c)
		request, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"+event); err != nil {
			return err
		}
	}
	return nil
}

// inUse returns the bytes of the live objects on the heap and of all stacks, and the number of goroutines.
func inUse() (heap, stacks, goroutines int) {
	for range 3 { // after two collections, every sync.Pool is empty
		runtime.GC()
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int(samples[0].Value.Uint64()), int(samples[1].Value.Uint64()), runtime.NumGoroutine()
}

// The panic of an adapter must reach [stream.Pump], which ends the reply: in another goroutine it would end the process.
func TestOnNewStack_Panic_ReachesCaller(t *testing.T) {
	defer func() {
		if got := recover(); got != "broken" {
			t.Errorf("recover returned %v", got)
		}
	}()
	onNewStack(func() { panic("broken") })
}

func TestGenerate_WaitingForToken_MemoryUnder32KiB(t *testing.T) {
	const requests, most = 200, memoryFactor * 32 << 10
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &silentServer{Listener: listener}
	defer listener.Close()
	served := make(chan error, 1)
	model := New(Options{BaseURL: "http://" + listener.Addr().String() + "/v1", Name: "m"})
	heap, stacks, goroutines := inUse()
	go func() { served <- server.serve(requests) }()
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan struct{})
	for range requests {
		go func() {
			defer func() { ended <- struct{}{} }()
			_, _ = model.Generate(ctx, hello, func([]byte) { begun <- struct{}{} })
		}()
		<-begun
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	nowHeap, nowStacks, now := inUse()
	heap, stacks = (nowHeap-heap)/requests, (nowStacks-stacks)/requests
	t.Logf("a request that waits for a token: %d bytes of heap, %d of stacks, %.2f goroutines", heap, stacks, float64(now-goroutines)/requests)
	if heap+stacks > most {
		t.Errorf("a request takes %d bytes, want at most %d", heap+stacks, most)
	}
	if now-goroutines > 3*requests {
		t.Errorf("%d requests have %d goroutines, want 3 each", requests, now-goroutines)
	}
	cancel()
	for range requests {
		<-ended
	}
	for _, c := range server.conns {
		_ = c.Close()
	}
	model.Close()
}
