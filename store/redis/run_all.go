package redis

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
)

// call is a script with its keys and arguments, to be run in a pipeline.
type call struct {
	script *script
	keys   []string
	args   []any
}

// runAll runs calls of one script that has neither admits nor reserves, in one round trip to each server. It returns a result or
// an error for each call. If a server has not run a script, because it does not know the script or is not the master, another
// round trip sends the script's text, once if there is one server.
func (s *Store) runAll(ctx context.Context, calls []call) ([]any, []error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	replies, errs := make([]any, len(calls)), make([]error, len(calls))
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	missing := s.pipeline(ctx, calls, replies, errs, all, 0)
	if slices.ContainsFunc(missing, func(i int) bool { return isMoved(errs[i]) }) {
		s.topology.ask(ctx)
	}
	if len(missing) > 0 && !s.clustered {
		missing = s.pipeline(ctx, calls, replies, errs, missing, 1)
	}
	if len(missing) > 0 {
		s.pipeline(ctx, calls, replies, errs, missing, len(missing))
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			s.doubt()
		}
		if err != nil && !errors.Is(err, conversation.ErrUnavailable) {
			errs[i] = calls[i].script.fault(err)
		}
	}
	return replies, errs
}

// batch is a pipeline to one master or, if the script does not wait for replicas, to all servers.
type batch struct {
	server
	redis.Pipeliner
	key    string // of the first call
	behind error  // the error if replicas lack writes, so that a fail-over could lose them; otherwise nil
}

// pipeline runs the calls with the indices in numbers, in one round trip to each server. The first calls, as many as the
// argument texts says, send the texts of their scripts. The others send the digests. It returns the indices of the calls that
// did not run because the server does not know the script or is not the master.
func (s *Store) pipeline(ctx context.Context, calls []call, replies []any, errs []error, numbers []int, texts int) (missing []int) {
	batches := make(map[string]*batch)
	of, commands := make([]*batch, len(numbers)), make([]*redis.Cmd, len(numbers))
	for at, i := range numbers {
		c := calls[i]
		commands[at] = command(ctx, c.script, at < texts, s.guarded(c.keys), c.args)
		var err error
		if of[at], err = s.batchFor(ctx, batches, &c); err != nil {
			commands[at].SetErr(err)
			continue
		}
		_ = of[at].Process(ctx, onceOnly{commands[at]}) // only queues the command
	}
	var work sync.WaitGroup
	for _, b := range batches {
		work.Go(func() { s.execBatch(ctx, b, s.waits(calls[0].script)) })
	}
	work.Wait()
	for at, i := range numbers {
		replies[i], errs[i] = result(commands[at])
		if errs[i] == nil {
			errs[i] = of[at].behind
		}
		if isUnknown(errs[i]) || isMoved(errs[i]) {
			missing = append(missing, i)
		}
	}
	return missing
}

// batchFor returns the batch for a call. It adds the batch if it is missing.
func (s *Store) batchFor(ctx context.Context, batches map[string]*batch, c *call) (*batch, error) {
	master := server{Cmdable: s.db}
	if s.waits(c.script) {
		var err error
		if master, err = s.masterOf(ctx, c.keys[0]); err != nil {
			return nil, err
		}
	}
	b := batches[master.address]
	if b == nil {
		b = &batch{server: master, Pipeliner: master.Pipeline(), key: c.keys[0]}
		batches[master.address] = b
		if s.waits(c.script) {
			b.behind = s.probeReplicas(ctx, b.key)
		}
	}
	return b, b.behind
}

// execBatch sends the commands of a batch. If wait is set, it waits for the replicas of the batch's master.
func (s *Store) execBatch(ctx context.Context, b *batch, wait bool) {
	if b.behind != nil {
		return
	}
	var waits []*redis.Cmd
	if wait {
		waits = queue(ctx, b, s.replicas.awaiting(b.key, replicaTimeout))
	}
	_, _ = b.Exec(ctx) // each command has its own error
	if wait {
		b.behind = s.replicas.check(b.address, waits)
	}
}
