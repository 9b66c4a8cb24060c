package main

import (
	"fmt"
	"syscall"
	"time"

	"parley/store/redis/redistest"
)

const (
	// orphaned is the time after which other nodes have ended the replies of a dead node.
	orphaned = 5 * time.Second
	// poll is the time after which a node notices a change by itself if a wake-up was lost.
	poll = 6 * time.Second
)

func nodeRows() []*row {
	return []*row{
		{
			name: "node-killed", fault: "`kill -9` of a node, again and again", where: "3 nodes, Redis",
			try:    func(w *world) { w.onRedis(3, ""); w.underLoad(w.kills(w.scaled(4, 2))) },
			outage: time.Second, ending: orphaned, short: true,
		},
		{
			name: "server-killed", fault: "`kill -9` of the server, again and again", where: "embedded store",
			try:    func(w *world) { w.embedded(w.TempDir()); w.underLoad(w.kills(w.scaled(4, 2))) },
			outage: 2 * time.Second, ending: 2 * time.Second, short: true,
		},
		{
			name: "node-sleeps", fault: "a node is suspended for 4 to 7 s (SIGSTOP), and continues", where: "3 nodes, Redis",
			try:    func(w *world) { w.onRedis(3, ""); w.underLoad(w.sleeps()) },
			outage: 3 * time.Second, ending: 7*time.Second + poll, short: true,
		},
		{
			name: "viewers-cut", fault: "connections are cut; clients resume on another node", where: "3 nodes, Redis",
			try:    func(w *world) { w.onRedis(3, ""); w.underLoad(w.cuts(w.scaled(40, 15))) },
			outage: time.Second, ending: poll, short: true,
		},
	}
}

// embedded starts a server with the embedded store in dir.
func (w *world) embedded(dir string, env ...string) *node {
	return w.serve(dir, "file:"+storeFile, env...)
}

// onRedis starts a Redis that keeps its data over a restart, and nodes on it. options is the query of the store's address.
func (w *world) onRedis(nodes int, options string, env ...string) *redistest.Server {
	w.needs("redis-server")
	s := redistest.Single(w, "--appendonly", "yes")
	for range nodes {
		w.serve(w.TempDir(), s.URL+options, env...)
	}
	return s
}

// between returns a random time. The schedule of a seed always gets the same times.
func (w *world) between(low, high time.Duration) time.Duration {
	return (low + time.Duration(w.random.Int64N(int64(high-low)))).Round(10 * time.Millisecond)
}

// kills returns steps that kill a random node and start it again.
func (w *world) kills(times int) (steps []step) {
	for range times {
		i := w.random.IntN(len(w.nodes))
		n := w.nodes[i]
		steps = append(steps,
			step{w.between(300*time.Millisecond, 2*time.Second), fmt.Sprintf("kill node %d", i), n.kill},
			step{w.between(100*time.Millisecond, time.Second), fmt.Sprintf("start node %d", i), n.start})
	}
	return steps
}

// sleeps returns steps that suspend a node, and then another node. Each sleeps for longer than the 3 s after which the
// other nodes take it for dead.
func (w *world) sleeps() (steps []step) {
	for _, i := range w.random.Perm(len(w.nodes))[:2] {
		n := w.nodes[i]
		stop, resume := func() { n.signal(syscall.SIGSTOP) }, func() { n.signal(syscall.SIGCONT) }
		steps = append(steps,
			step{w.between(300*time.Millisecond, 2*time.Second), fmt.Sprintf("stop node %d", i), stop},
			step{w.between(4*time.Second, 7*time.Second), fmt.Sprintf("continue node %d", i), resume})
	}
	return steps
}

// cuts returns steps that cut a random half of the connections.
func (w *world) cuts(times int) (steps []step) {
	for range times {
		steps = append(steps, step{w.between(50*time.Millisecond, 400*time.Millisecond), "cut", func() { w.gate.cut(0.5) }})
	}
	return steps
}
