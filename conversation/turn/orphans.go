package turn

import (
	"context"
	"time"
)

// orphansEvery is how often each node looks for orphans. A node is taken for gone after 3 s, so its viewers see the ending within
// 5 s.
const orphansEvery = time.Second

// EndOrphans ends the turns whose node is gone. Before a process serves, it ends those of the process before it.
func (t *Turns) EndOrphans(ctx context.Context) error {
	n, err := t.options.Store.EndOrphans(ctx, t.options.Count)
	if n > 0 {
		t.options.Log.Info("orphaned replies were ended as interrupted", "replies", n)
	}
	return err
}

// RunOrphans ends the orphans of other nodes until ctx is done. It returns at once if there are no other nodes.
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
