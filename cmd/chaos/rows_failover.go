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
			name: "sentinel-failover", fault: "the master dies; Sentinels promote a replica",
			where:  "2 nodes, Sentinel, 2 replicas, `waitReplicas=1`",
			try:    func(w *world) { w.underLoad(w.masterDies()) },
			outage: promoted + 2*refused, ending: promoted + 2*refused, short: true, unchecked: true,
		},
		{
			name: "cluster-master-killed", fault: "the account's master in a Cluster dies; its replica is promoted",
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
		knows := func() bool { return strings.Contains(sentinel.Do("SENTINEL", "MASTER", "parley"), "num-slaves 2") }
		if _, ok := eventually(30*time.Second, knows); !ok {
			w.Fatal("the Sentinels do not know the second replica")
		}
	}
	for range 2 {
		w.serve(w.TempDir(), s.URL+"?waitReplicas=1")
	}
	return []step{
		{w.between(300*time.Millisecond, 2*time.Second), "kill the master", s.Master.Kill},
		{2 * promoted, "end", func() {}},
	}
}

// accountTag is the part of the keys that decides in which slot the data of the default account is.
const accountTag = "{a:default:l}"

// clusterMasterDies starts a Cluster. It returns the step that kills the master of the account's slot.
func (w *world) clusterMasterDies() []step {
	w.needs("redis-server")
	c := redistest.ClusterWithReplicas(w)
	for range 2 {
		w.serve(w.TempDir(), c.URL)
	}
	shard := c.ShardOf(accountTag)
	return []step{
		{w.between(300*time.Millisecond, 2*time.Second), "kill the master", func() {
			c.Masters[shard].Kill()
			c.AwaitPromotion(shard)
		}},
		{2 * promoted, "end", func() {}},
	}
}
