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
	// replicaWait is how long replicas may take to acknowledge what was written; it leaves callLimit room for the rest.
	replicaWait = time.Second
	// replicaProbe is how long they may take while they were behind the last time.
	replicaProbe = 100 * time.Millisecond
	// maxReplicas is the largest number of replicas that can be waited for.
	maxReplicas = 100
)

// replicas is the wait for replicas (see Open): what a fail-over must not lose is acknowledged by so many of them before
// its caller knows of it, in the trip of the script that writes it. Where they were behind, what would wait for them is not begun.
type replicas struct {
	wanted int         // static; 0 waits for none
	behind atomic.Bool // whether fewer acknowledged, the last time
}

// errBehind says that too few replicas acknowledged in time; what was written is written nevertheless.
var errBehind = unavailable(errors.New("redis: too few replicas acknowledge what is written (waitReplicas)"))

// awaiting returns the commands that wait for the replicas, after what is durable; none where none is waited for. The first of them writes, as WAIT is
// only for what this connection has written: a script that finds its work done by an earlier call, whose wait failed,
// writes nothing itself. (7.0 counts whatever was asked last as written; that is not promised.)
func (r *replicas) awaiting(limit time.Duration) [][]any {
	if r.wanted == 0 {
		return nil
	}
	return [][]any{{"set", readyKey, "1", "px", 1}, {"wait", r.wanted, limit.Milliseconds()}}
}

// check returns the error of a command that was sent beside scripts.
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
	commands := queue(ctx, pipe, s.replicas.awaiting(replicaProbe))
	_, _ = pipe.Exec(ctx) // each command has its own error
	return s.checkAll(commands)
}

// queue queues commands in a pipeline.
func queue(ctx context.Context, pipe redis.Pipeliner, commands [][]any) []*redis.Cmd {
	queued := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		queued[i] = redis.NewCmd(ctx, command...)
		_ = pipe.Process(ctx, onceOnly{queued[i]})
	}
	return queued
}

// checkAll returns the first error of commands that were sent beside scripts.
func (s *Store) checkAll(commands []*redis.Cmd) (first error) {
	for _, cmd := range commands {
		if err := s.replicas.check(cmd); first == nil {
			first = err
		}
	}
	return first
}

// parseReplicas reads how many replicas are to be waited for, "" being none.
func parseReplicas(text string, clustered bool) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 0 || n > maxReplicas:
		return 0, errors.New("redis: waitReplicas of the store's URL must be a whole number from 0 to 100")
	case n > 0 && clustered:
		return 0, errors.New("redis: waitReplicas is not for a Cluster; there, min-replicas-to-write of its servers narrows what a fail-over loses")
	}
	return n, nil
}
