package redis

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// replicaTimeout is how long replicas may take to acknowledge a write; of callTimeout it leaves 0.8 s for the rest.
	replicaTimeout = time.Second
	// probeTimeout is how long they may take if they were behind the last time, so that requests fail fast meanwhile.
	probeTimeout = 100 * time.Millisecond
	// maxReplicas is the largest value of waitReplicas.
	maxReplicas = 100
)

// replicas waits for replicas (see Open): a durable script's writes are acknowledged by that many before its caller gets the
// result, in the same round trip. If they were behind the last time, a durable script does not run.
type replicas struct {
	wanted int         // static; 0: wait for none
	behind atomic.Bool // whether fewer acknowledged the last time
}

// errBehind is the error if too few replicas acknowledged in time. The script may have run nevertheless.
var errBehind = unavailable(errors.New("redis: too few replicas acknowledge writes in time (waitReplicas)"))

// awaiting returns the commands that wait for the replicas, to be sent after a durable script; none if waitReplicas is 0. The
// first of them writes, because WAIT covers only what its own connection has written: a script that finds its work done by an
// earlier call, whose wait failed, writes nothing itself. (Redis 7.0 also covers reads, but does not promise it.)
func (r *replicas) awaiting(timeout time.Duration) [][]any {
	if r.wanted == 0 {
		return nil
	}
	return [][]any{{"set", readyKey, "1", "px", 1}, {"wait", r.wanted, timeout.Milliseconds()}}
}

// check returns the error of a command that was sent beside a script.
func (r *replicas) check(cmd *redis.Cmd) error {
	if err := cmd.Err(); err != nil {
		return unavailable(err)
	}
	if cmd.Name() != "wait" {
		return nil
	}
	n, err := cmd.Int()
	enough := err == nil && n >= r.wanted
	r.behind.Store(!enough)
	if !enough {
		return errBehind
	}
	return nil
}

// probeReplicas returns an error if the replicas were behind the last time, and still are.
func (s *Store) probeReplicas(ctx context.Context) error {
	if !s.replicas.behind.Load() {
		return nil
	}
	pipe := s.db.Pipeline()
	commands := queue(ctx, pipe, s.replicas.awaiting(probeTimeout))
	_, _ = pipe.Exec(ctx) // each command has its own error
	return s.checkAll(commands)
}

// parseReplicas reads the parameter waitReplicas; "" is 0.
func parseReplicas(text string, clustered bool) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > maxReplicas:
		return 0, errors.New("redis: waitReplicas in the store's URL must be a whole number from 0 to 100")
	case n > 0 && clustered:
		return 0, errors.New("redis: waitReplicas does not work with a Cluster; set min-replicas-to-write on its servers instead")
	}
	return n, nil
}
