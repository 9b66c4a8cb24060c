package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

// Nodes is a Cluster of three masters. Either each master has one replica, or no master has one.
type Nodes struct {
	URL      string // URL of a store on this Cluster, for redis.Open
	Masters  []*Server
	Replicas []*Server // Replicas[i] replicates Masters[i]; empty in a Cluster without replicas
}

// slots is the number of hash slots that Redis Cluster defines.
const slots = 16384

// Cluster starts a Cluster of three masters without replicas, and waits until it serves all slots. args are options of each
// redis-server.
func Cluster(t testing.TB, args ...string) *Nodes {
	t.Helper()
	c := &Nodes{}
	c.Masters = startNodes(t, args)
	for i, s := range c.Masters {
		first, last := i*slots/3, (i+1)*slots/3-1
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	c.join(c.Masters[1:])
	c.AwaitHealth()
	var addresses []string
	for _, s := range c.Masters {
		addresses = append(addresses, s.Addr)
	}
	c.URL = "redis+cluster://" + strings.Join(addresses, ",")
	return c
}

// ClusterWithReplicas starts a Cluster of three masters with one replica each, and waits until the replicas have caught up. The
// Cluster promotes a replica about two seconds after its master has died. args are options of each redis-server.
func ClusterWithReplicas(t testing.TB, args ...string) *Nodes {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	c := Cluster(t, args...)
	c.Replicas = startNodes(t, args)
	c.join(c.Replicas)
	for i, replica := range c.Replicas {
		master := c.Masters[i].Do("CLUSTER", "MYID")
		replica.await("it does not know its master", func() bool { return replica.try("CLUSTER", "REPLICATE", master) == "+OK" })
	}
	for i, replica := range c.Replicas {
		replica.AwaitMaster()
		c.Masters[i].AwaitReplica()
	}
	c.AwaitHealth()
	return c
}

// startNodes starts three servers in cluster mode.
func startNodes(t testing.TB, args []string) (nodes []*Server) {
	t.Helper()
	for range 3 {
		nodes = append(nodes, Single(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", FreePort(t),
			"--cluster-node-timeout", "1000", "--cluster-config-file", "nodes.conf"}, args...)...))
	}
	return nodes
}

// join makes the first master add the given servers to the Cluster (CLUSTER MEET).
func (c *Nodes) join(servers []*Server) {
	for _, s := range servers {
		s.t.Helper()
		host, port, _ := net.SplitHostPort(s.Addr)
		c.Masters[0].Do("CLUSTER", "MEET", host, port, strings.TrimPrefix(s.Do("CONFIG", "GET", "cluster-port"), "cluster-port "))
	}
}

// AwaitHealth waits until each server knows all others and the replicas among them, takes none of them for dead, and reports that
// the Cluster serves all slots.
func (c *Nodes) AwaitHealth() {
	all := append(c.Masters[:len(c.Masters):len(c.Masters)], c.Replicas...)
	known := "cluster_known_nodes:" + strconv.Itoa(len(all)) + "\r\n"
	for _, s := range all {
		s.t.Helper()
		s.await("its Cluster is not healthy", func() bool {
			info, nodes := s.try("CLUSTER", "INFO"), s.try("CLUSTER", "NODES")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, known) &&
				strings.Count(nodes, "slave ") == len(c.Replicas) && !strings.Contains(nodes, "fail")
		})
	}
}

// ShardOf returns the index of the master that serves key in a new Cluster.
func (c *Nodes) ShardOf(key string) int {
	c.Masters[0].t.Helper()
	slot, _ := strconv.Atoi(strings.TrimPrefix(c.Masters[0].Do("CLUSTER", "KEYSLOT", key), ":"))
	for i := range c.Masters {
		if slot < (i+1)*slots/3 {
			return i
		}
	}
	return -1
}

// AwaitPromotion waits until the replica of a shard has become the master.
func (c *Nodes) AwaitPromotion(shard int) { c.Replicas[shard].AwaitRole("master") }

// Migration moves the slot of a key from one master to another, in steps.
type Migration struct {
	slot     string
	from, to *Server
	others   []*Server // the masters except from and to
}

// Migrate begins to move the slot of key from its master to another one. The slot keeps all keys until MoveKeys.
func (c *Nodes) Migrate(key string) *Migration {
	at := c.ShardOf(key)
	next := (at + 1) % len(c.Masters)
	m := &Migration{
		slot: strings.TrimPrefix(c.Masters[0].Do("CLUSTER", "KEYSLOT", key), ":"), from: c.Masters[at], to: c.Masters[next],
		others: []*Server{c.Masters[(at+2)%len(c.Masters)]},
	}
	m.to.Do("CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.Do("CLUSTER", "MYID"))
	m.from.Do("CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.Do("CLUSTER", "MYID"))
	return m
}

// MoveKeys moves keys of the slot.
func (m *Migration) MoveKeys(keys ...string) {
	host, port, _ := net.SplitHostPort(m.to.Addr)
	m.from.Do(append([]string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}, keys...)...)
}

// Finish moves all keys that are left, and makes the new master serve the slot.
func (m *Migration) Finish() {
	if keys := strings.Fields(m.from.send(timeout, "CLUSTER", "GETKEYSINSLOT", m.slot, "100000")); len(keys) > 0 {
		m.MoveKeys(keys...)
	}
	for _, s := range append([]*Server{m.to, m.from}, m.others...) {
		s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", m.to.Do("CLUSTER", "MYID"))
	}
}
