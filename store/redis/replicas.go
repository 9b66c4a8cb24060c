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
	// Replicas must acknowledge a write within replicaTimeout. That leaves 0.8 s of defaultTimeout for the rest of the call.
	replicaTimeout = time.Second
	// If the replicas were too slow at the last durable call, they must acknowledge within probeTimeout, so that requests fail
	// fast.
	probeTimeout = 100 * time.Millisecond
	// maxReplicas is the maximum of waitReplicas.
	maxReplicas = 100
)

// replicas waits for replicas (see Open). A durable script's caller gets the result only after enough replicas have acknowledged
// the writes. The wait is in the same round trip as the script. If the replicas were behind at the last durable call, a probe
// writes first. If the replicas do not acknowledge the probe in time, the script does not run.
type replicas struct {
	wanted int         // static; number of replicas that must acknowledge a write; 0: do not wait
	behind atomic.Bool // too few replicas acknowledged the last write in time
}

// errBehind means that too few replicas acknowledged a write in time. The script may have run nevertheless.
var errBehind = unavailable(errors.New("redis: too few replicas acknowledge writes in time (waitReplicas)"))

// awaiting returns two commands to send after a durable script: a write, and WAIT. It returns none if waitReplicas is 0. WAIT
// covers only the writes of its own connection. A repeated script may write nothing, because an earlier call did its work on
// another connection. The write before WAIT makes WAIT cover that work too. (In Redis 7.0, WAIT also covers reads, but the
// documentation does not promise it.)
func (r *replicas) awaiting(timeout time.Duration) [][]any {
	if r.wanted == 0 {
		return nil
	}
	return [][]any{{"set", readyKey, "1", "px", 1}, {"wait", r.wanted, timeout.Milliseconds()}}
}

// check returns the error of a command that was sent in the same pipeline as a script. If the command is WAIT, check also updates
// behind.
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

// probeReplicas returns an error if the replicas were behind at the last durable call, and do not acknowledge a new write within
// probeTimeout.
func (s *Store) probeReplicas(ctx context.Context) error {
	if !s.replicas.behind.Load() {
		return nil
	}
	pipe := s.db.Pipeline()
	commands := queue(ctx, pipe, s.replicas.awaiting(probeTimeout))
	_, _ = pipe.Exec(ctx) // each command has its own error
	return s.checkAll(commands)
}

// parseReplicas parses the URL parameter waitReplicas; "" means 0.
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
