package redis

import (
	"context"
	"errors"
	"strconv"
	"sync"
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
//
// In a Cluster, WAIT must reach the connection on which the script ran. The go-redis client would send WAIT, which has no key, to
// any master. So the store itself finds the master of a durable script, and sends both commands to that master. If the server is
// no longer the master, the script does not run, and the store sends both commands again to the new master.
type replicas struct {
	wanted int      // static; number of replicas that must acknowledge a write; 0: do not wait
	behind sync.Map // addresses of masters; too few replicas acknowledged the last write to the master in time
}

// errBehind means that too few replicas acknowledged a write in time. The script may have run nevertheless.
var errBehind = unavailable(errors.New("redis: too few replicas acknowledge writes in time (waitReplicas)"))

// awaiting returns two commands to send after a durable script with this key: a write, and WAIT. WAIT covers only the writes of
// its own connection. A repeated script may write nothing, because an earlier call did its work on another connection. The write
// before WAIT makes WAIT cover that work too. (In Redis 7.0, WAIT also covers reads, but the documentation does not promise it.)
func (r *replicas) awaiting(key string, timeout time.Duration) [][]any {
	return [][]any{{"set", readyBeside(key), "1", "px", 1}, {"wait", r.wanted, timeout.Milliseconds()}}
}

// check returns the error of the commands of awaiting, which a pipeline has sent to master. It records whether the master's
// replicas are behind.
func (r *replicas) check(master string, commands []*redis.Cmd) error {
	for _, cmd := range commands {
		if err := cmd.Err(); err != nil {
			return unavailable(err)
		}
	}
	if n, err := commands[len(commands)-1].Int(); err != nil || n < r.wanted {
		r.behind.Store(master, nil)
		return errBehind
	}
	r.behind.Delete(master)
	return nil
}

// server is a client for one server: the only one, the master that the Sentinels name, or a master of a Cluster.
type server struct {
	redis.Cmdable
	address string // "" if there is no Cluster
}

// masterOf returns the server that stores key.
func (s *Store) masterOf(ctx context.Context, key string) (server, error) {
	cluster, ok := s.db.(*redis.ClusterClient)
	if !ok {
		return server{Cmdable: s.db}, nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return server{}, err
	}
	return server{master, master.Options().Addr}, nil
}

// probeReplicas returns an error if the replicas of the master that stores key were behind at the last durable call, and do not
// acknowledge a new write within probeTimeout.
func (s *Store) probeReplicas(ctx context.Context, key string) error {
	master, err := s.masterOf(ctx, key)
	if err != nil {
		return fault(err)
	}
	if _, behind := s.replicas.behind.Load(master.address); !behind {
		return nil
	}
	pipe := master.Pipeline()
	commands := queue(ctx, pipe, s.replicas.awaiting(key, probeTimeout))
	_, _ = pipe.Exec(ctx) // each command has its own error
	return s.replicas.check(master.address, commands)
}

// parseReplicas parses the URL parameter waitReplicas; "" means 0.
func parseReplicas(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxReplicas {
		return 0, errors.New("redis: waitReplicas in the store's URL must be a whole number from 0 to 100")
	}
	return n, nil
}
