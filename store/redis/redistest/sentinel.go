package redistest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Watched is a master and its replica, monitored by Sentinels.
type Watched struct {
	URL       string // URL of a store on this master, for redis.Open
	Master    *Server
	Replica   *Server
	Sentinels []*Server
}

// masterName is the name under which the Sentinels monitor the master.
const masterName = "parley"

const sentinelConfig = `
port OWN
bind 127.0.0.1
dir DIR
logfile log
sentinel monitor NAME HOST PORT 2
sentinel down-after-milliseconds NAME 500
sentinel failover-timeout NAME 2000
`

// Sentinel starts a master, a replica, and three Sentinels. It waits until the Sentinels know each other and the replica. They
// fail over if two of them agree that the master has not replied for 500 ms.
func Sentinel(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Master: Single(t, "--repl-diskless-sync-delay", "0")}
	host, port, _ := net.SplitHostPort(w.Master.Addr)
	w.Replica = Single(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	w.Replica.AwaitMaster()
	var addresses []string
	for range 3 {
		s := newServer(t, t.TempDir())
		t.Cleanup(s.Kill)
		_, own, _ := net.SplitHostPort(s.Addr)
		config := strings.NewReplacer("OWN", own, "DIR", s.dir, "NAME", masterName, "HOST", host, "PORT", port).Replace(sentinelConfig)
		if err := os.WriteFile(filepath.Join(s.dir, "sentinel.conf"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start()
		w.Sentinels = append(w.Sentinels, s)
		addresses = append(addresses, s.Addr)
	}
	for _, s := range w.Sentinels {
		s.await("it does not know the other Sentinels", func() bool {
			known := s.try("SENTINEL", "MASTER", masterName)
			return strings.Contains(known, "num-other-sentinels 2") && strings.Contains(known, "num-slaves 1") &&
				strings.Contains(known, " flags master ")
		})
	}
	w.URL = "redis+sentinel://" + strings.Join(addresses, ",") + "/" + masterName
	return w
}

// AwaitFailover waits until the replica has become the master, and all Sentinels report it as the master.
func (w *Watched) AwaitFailover() {
	w.Replica.t.Helper()
	_, port, _ := net.SplitHostPort(w.Replica.Addr)
	for _, s := range w.Sentinels {
		s.await("it has not failed over", func() bool {
			return strings.HasSuffix(s.try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName), " "+port) &&
				strings.Contains(w.Replica.try("INFO", "replication"), "role:master")
		})
	}
}
