package main

import (
	"net"
	"strings"
	"time"

	"parley/store/redis/redistest"
)

// promoted is the time in which Sentinels or a Cluster promote a replica in these surroundings.
const promoted = 4 * time.Second

func failoverRows() []*row {
	return []*row{
		{
			name: "sentinel-failover", fault: "the master dies; Sentinels promote a replica", where: "2 nodes, Sentinel, 2 replicas, `waitReplicas=1`",
			try:    func(w *world) { w.underLoad(w.masterDies()) },
			outage: promoted + 2*refused, ending: promoted + 2*refused, short: true, unchecked: true,
		},
		{
			name: "cluster-master-killed", fault: "the account's master in a Cluster dies; its replica is promoted (F1)",
			where: "2 nodes, Cluster of 3 masters with replicas", lossy: true, // the Cluster replicates asynchronously
			try:    func(w *world) { w.underLoad(w.clusterMasterDies()) },
			outage: promoted + 3*time.Second, ending: promoted + 5*time.Second, short: true, unchecked: true,
		},
	}
}

// masterDies starts a master with two replicas and three Sentinels. It returns the step that kills the master.
func (w *world) masterDies() []step {
	w.needs("redis-server")
	s := redistest.Sentinel(w)
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	second := redistest.Single(w, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	second.AwaitMaster()
	for _, sentinel := range s.Sentinels { // Sentinels look for new replicas every 10 s
		if _, ok := eventually(20*time.Second, func() bool { return strings.Contains(sentinel.Do("SENTINEL", "MASTER", "parley"), "num-slaves 2") }); !ok {
			w.Fatal("the Sentinels do not know the second replica")
		}
	}
	for range 2 {
		w.serve(w.TempDir(), s.URL+"?waitReplicas=1")
	}
	return []step{{w.between(300*time.Millisecond, 2*time.Second), "kill the master", s.Master.Kill}, {8 * time.Second, "end", func() {}}}
}

// accountTag is the part of the keys that decides in which slot the data of the default account is.
const accountTag = "{a:default:l}"

// clusterMasterDies starts a Cluster. It returns the step that kills the master of the account's slot.
func (w *world) clusterMasterDies() []step {
	w.needs("redis-server")
	c := redistest.Cluster(w)
	replicas(w, c)
	for range 2 {
		w.serve(w.TempDir(), c.URL)
	}
	var slot int
	reply := c.Masters[0].Do("CLUSTER", "KEYSLOT", accountTag)
	for _, digit := range strings.TrimPrefix(reply, ":") {
		slot = slot*10 + int(digit-'0')
	}
	master := c.Masters[min(slot*3/16384, 2)]
	return []step{{w.between(300*time.Millisecond, 2*time.Second), "kill the master", master.Kill}, {8 * time.Second, "end", func() {}}}
}

// replicas adds a replica to each master of a Cluster.
func replicas(w *world, c *redistest.Nodes) {
	for _, m := range c.Masters {
		bus := redistest.FreePort(w)
		r := redistest.Single(w, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000",
			"--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0")
		host, port, _ := net.SplitHostPort(r.Addr)
		m.Do("CLUSTER", "MEET", host, port, bus)
		id := m.Do("CLUSTER", "MYID")
		if _, ok := eventually(20*time.Second, func() bool { return strings.Contains(r.Do("CLUSTER", "NODES"), id) }); !ok {
			w.Fatal("a replica does not know its master")
		}
		time.Sleep(500 * time.Millisecond) // until the replica knows the slots of its master
		r.Do("CLUSTER", "REPLICATE", id)
		r.AwaitMaster()
	}
}
