package turn

import (
	"context"
	"time"
)

// orphansEvery is the interval between two searches for orphans on each node. A node counts as gone after 3 s without a
// heartbeat. So viewers see the end of an orphan within 5 s.
const orphansEvery = time.Second

// EndOrphans ends the turns of nodes that are gone. A process calls EndOrphans before it serves requests. On a store
// without Nodes, every live turn then belongs to an earlier process.
func (t *Turns) EndOrphans(ctx context.Context) error {
	n, err := t.options.Store.EndOrphans(ctx, t.options.Count)
	if n > 0 {
		t.options.Log.Info("orphaned replies were ended as interrupted", "replies", n)
	}
	return err
}

// RunOrphans calls EndOrphans every second until ctx is done. It returns at once if no other node shares the store.
func (t *Turns) RunOrphans(ctx context.Context) {
	if t.options.Nodes == nil {
		return
	}
	tick := time.NewTicker(orphansEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := t.EndOrphans(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			t.options.Log.Error("orphaned replies cannot be ended; retrying every second", "error", err)
		}
		failing = err != nil
	}
}
