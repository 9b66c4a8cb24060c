package main

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// gate is a load balancer for TCP in front of the nodes. Each connection goes to a random node, so a client that reconnects hops
// between the nodes. Like a real load balancer, it prefers nodes that are ready, and it drops the connections of a node that
// does not respond.
type gate struct {
	addr     string // host:port
	listener net.Listener
	done     chan struct{}
	work     sync.WaitGroup

	mu    sync.Mutex
	nodes []*node            // guarded by mu
	well  map[*node]bool     // guarded by mu; whether /readyz succeeded at the last check
	links map[*link]struct{} // guarded by mu; nil after close
}

// link is a connection through the gate.
type link struct {
	node           *node
	client, server net.Conn
}

func (l *link) close() { _ = l.client.Close(); _ = l.server.Close() }

// checkEvery is the interval of the health checks: short, so that clients leave a dead node soon.
const checkEvery = 250 * time.Millisecond

// newGate starts a gate. The gate stops when the scene ends.
func newGate(s *scene) *gate {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	g := &gate{
		addr: listener.Addr().String(), listener: listener, done: make(chan struct{}),
		well: map[*node]bool{}, links: map[*link]struct{}{},
	}
	g.work.Go(g.accept)
	s.Cleanup(g.close)
	return g
}

// add adds a node. If checked is true, the gate checks its health.
func (g *gate) add(n *node, checked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes, g.well[n] = append(g.nodes, n), true
	if checked {
		g.work.Go(func() { g.check(n) })
	}
}

func (g *gate) check(n *node) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.done:
			return
		}
		code := n.ready()
		g.mu.Lock()
		g.well[n] = code == 200
		for l := range g.links {
			if l.node == n && code == 0 {
				l.close()
			}
		}
		g.mu.Unlock()
	}
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.work.Go(func() { g.serve(client) })
	}
}

// serve connects a client to a node and copies bytes until one side closes.
func (g *gate) serve(client net.Conn) {
	defer client.Close()
	for _, n := range g.choices() {
		server, err := net.DialTimeout("tcp", n.addr, time.Second)
		if err != nil {
			continue
		}
		l := &link{n, client, server}
		g.mu.Lock()
		open := g.links != nil
		if open {
			g.links[l] = struct{}{}
		}
		g.mu.Unlock()
		if open {
			g.work.Go(func() { defer l.close(); _, _ = io.Copy(client, server) })
			_, _ = io.Copy(server, client)
		}
		l.close()
		g.mu.Lock()
		delete(g.links, l)
		g.mu.Unlock()
		return
	}
}

// choices returns the nodes in a random order. Nodes that are not ready come last.
func (g *gate) choices() []*node {
	g.mu.Lock()
	defer g.mu.Unlock()
	var well, others []*node
	for _, i := range rand.Perm(len(g.nodes)) {
		if n := g.nodes[i]; g.well[n] {
			well = append(well, n)
		} else {
			others = append(others, n)
		}
	}
	return append(well, others...)
}

// cut closes a random share of the connections, even in the middle of a message. It returns the number of closed
// connections.
func (g *gate) cut(share float64) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.links {
		if rand.Float64() < share {
			l.close()
			n++
		}
	}
	return n
}

func (g *gate) close() {
	close(g.done)
	_ = g.listener.Close()
	g.mu.Lock()
	for l := range g.links {
		l.close()
	}
	g.links = nil
	g.mu.Unlock()
	g.work.Wait()
}
