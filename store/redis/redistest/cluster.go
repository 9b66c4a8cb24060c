package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

// Nodes is a Cluster of three masters without replicas.
type Nodes struct {
	URL     string // URL of a store on this Cluster, for redis.Open
	Masters []*Server
}

// slots is the number of hash slots that Redis Cluster defines.
const slots = 16384

// Cluster starts a Cluster of three masters, and waits until it serves all slots.
func Cluster(t testing.TB) *Nodes {
	t.Helper()
	c := &Nodes{}
	var addresses, buses []string
	for range 3 {
		bus := FreePort(t)
		s := Single(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "1000",
			"--cluster-config-file", "nodes.conf")
		c.Masters = append(c.Masters, s)
		addresses, buses = append(addresses, s.Addr), append(buses, bus)
	}
	for i, s := range c.Masters {
		first, last := i*slots/3, (i+1)*slots/3-1
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i > 0 {
			host, port, _ := net.SplitHostPort(s.Addr)
			c.Masters[0].Do("CLUSTER", "MEET", host, port, buses[i])
		}
	}
	c.AwaitHealth()
	c.URL = "redis+cluster://" + strings.Join(addresses, ",")
	return c
}

// AwaitHealth waits until each master knows the other two, and reports that the Cluster serves all slots.
func (c *Nodes) AwaitHealth() {
	for _, s := range c.Masters {
		s.t.Helper()
		s.await("it has not joined the Cluster", func() bool {
			info := s.try("CLUSTER", "INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3\r\n")
		})
	}
}
