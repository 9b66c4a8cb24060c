package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// topologyInterval is the interval at which the store asks a Cluster which master serves which slot. The go-redis client asks
	// only each minute and after a redirection, but a dead master redirects no client. One second keeps the time from a promotion
	// to the next successful request under 3 s, even if one question goes to a server that does not answer. An answer costs a
	// server about 0.1 ms.
	topologyInterval = time.Second
	// A server has topologyTimeout to answer. The next question goes to another server, which the client chooses at random.
	topologyTimeout = time.Second
)

// topology keeps the client's view of a Cluster up to date, so that commands go to the masters that serve their slots.
// Without a Cluster, it does nothing.
type topology struct {
	// static
	cluster  *redis.ClusterClient // nil without a Cluster
	replaced func()               // called when the Cluster has other masters than before
	stop     context.CancelFunc

	work sync.WaitGroup // the goroutine that asks

	mu      sync.Mutex
	masters []string // guarded by mu; the sorted addresses of the masters
}

// start begins to follow the topology if client is the client of a Cluster. It calls replaced when the masters change.
func (t *topology) start(client redis.UniversalClient, replaced func()) {
	t.replaced = replaced
	if t.cluster, _ = client.(*redis.ClusterClient); t.cluster == nil {
		return
	}
	var running context.Context
	running, t.stop = context.WithCancel(context.Background())
	t.work.Go(func() { every(running, topologyInterval, func() { t.ask(running) }) })
}

// end stops following the topology.
func (t *topology) end() {
	if t.stop != nil {
		t.stop()
		t.work.Wait()
	}
}

// ask updates the client's view of the Cluster. If no server answers, the view stays unchanged. ForEachMaster is the
// only function of the client that waits for the answer.
func (t *topology) ask(ctx context.Context) {
	if t.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, topologyTimeout)
	defer cancel()
	var mu sync.Mutex
	var masters []string
	err := t.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master.Options().Addr)
		return nil
	})
	if err == nil {
		slices.Sort(masters)
		t.learn(masters)
	}
}

// learn stores the sorted addresses of the masters, and reports a change.
func (t *topology) learn(masters []string) {
	t.mu.Lock()
	changed := !slices.Equal(t.masters, masters)
	t.masters = masters
	t.mu.Unlock()
	if changed {
		t.replaced()
	}
}
