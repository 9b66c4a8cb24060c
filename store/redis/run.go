package redis

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/conversation"
)

// run runs a script in one round trip and returns its result: nil, an int64, a string, or a []any of these. tag is the
// hash tag of all keys, "" for keys without a tag. All writes to keys with a tag use run or runAll, except the SETRANGE of
// Journal.
//
// If the script has the property admits or reserves, and ctx has a pending admission, the script admits the request first. If the
// script refuses the request, the operation does not run, and the error is auth.ErrInvalidToken or an *auth.LimitError. Other
// errors come from script.fault.
//
// After a lost reply, the script may have run. run sends it again, once, if it is idempotent and counts no request. If the
// replicas do not acknowledge a durable script in time, the error is conversation.ErrUnavailable, although the script has run. If
// the replicas were behind before and still are, a durable script does not run at all.
func (s *Store) run(ctx context.Context, sc *script, tag string, keys []string, args ...any) (any, error) {
	return s.runWith(ctx, sc, tag, keys, nil, args...)
}

// runWith runs a script like run. beside holds commands that run after the script, in the same round trip. In a Cluster, a
// command for another server may run before the script. If only a command of beside fails, the error is
// conversation.ErrUnavailable.
func (s *Store) runWith(ctx context.Context, sc *script, tag string, keys []string, beside [][]any, args ...any) (any, error) {
	var admission *auth.Admission
	admits, counted := false, false
	if sc.admits() {
		admission = auth.AdmissionOf(ctx)
		counted = admission.Pending()
		keys, args, admits = withAdmission(sc, admission, tag, keys, args)
	}
	keys = s.guarded(keys)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if s.waits(sc) {
		if err := s.probeReplicas(ctx, keys[0]); err != nil {
			return nil, err
		}
	}
	reply, err := s.send(ctx, sc, keys, beside, args)
	if err != nil && sc.idempotent() && !counted && ctx.Err() == nil && isLost(err) {
		reply, err = s.send(ctx, sc, keys, beside, args)
	}
	if err != nil {
		if !errors.Is(err, context.Canceled) { // the caller has left, which is no sign of a fail-over
			s.doubt()
		}
		if errors.Is(err, conversation.ErrUnavailable) { // a command in beside failed
			return nil, err
		}
		return nil, sc.fault(err)
	}
	if admits {
		if reply, err = s.decide(ctx, sc, admission, reply); err != nil {
			return nil, err
		}
	}
	if !sc.has(wakes) {
		return reply, nil
	}
	parts := list(reply)
	if len(parts) != 2 {
		return nil, sc.malformed()
	}
	for _, woken := range list(parts[1]) {
		s.waiters.wake(text(woken))
	}
	return parts[0], nil
}

// guarded returns the keys of a script. If they have a tag, and the store is a Cluster, it adds a key that never exists. While a
// slot moves to another master, both masters refuse a script with several keys before it begins, unless all its keys have arrived
// (TRYAGAIN). Without the added key, a master would begin the script, and the script would fail at the first key that the other
// master has.
func (s *Store) guarded(keys []string) []string {
	tag, _, tagged := strings.Cut(keys[0], "}")
	if !s.clustered || !tagged {
		return keys
	}
	return append(keys[:len(keys):len(keys)], absentKey(tag+"}"))
}

// waits reports whether a caller of the script waits for replicas.
func (s *Store) waits(sc *script) bool { return s.replicas.wanted > 0 && sc.has(durable) }

// send sends the digest of a script. If the server does not know the script, send also sends the script's text, unless another
// caller does. If the server is no longer the master, send finds the new master first.
func (s *Store) send(ctx context.Context, sc *script, keys []string, beside [][]any, args []any) (any, error) {
	sendOnce := func(byText bool) (any, error) {
		return s.sendCommand(ctx, sc, command(ctx, sc, byText, keys, args), keys, beside)
	}
	before := s.texts.count(sc)
	reply, err := sendOnce(false)
	if isMoved(err) {
		s.topology.ask(ctx)
		reply, err = sendOnce(false)
	}
	if isUnknown(err) && s.clustered {
		return sendOnce(true)
	}
	if isUnknown(err) {
		return s.texts.sendText(ctx, sc, before, sendOnce)
	}
	return reply, err
}

// isMoved reports whether a server refused a command because it is not the master of the command's slot.
func isMoved(err error) bool { return err != nil && redis.HasErrorPrefix(err, "MOVED ") }

// sendCommand sends cmd, which runs a script, and the commands in beside, in one round trip. It returns the error of
// cmd. If cmd succeeds, it returns the first error of beside, or errBehind if too few replicas have the writes.
func (s *Store) sendCommand(ctx context.Context, sc *script, cmd *redis.Cmd, keys []string, beside [][]any) (any, error) {
	wait := s.waits(sc)
	if len(beside) == 0 && !wait {
		_ = s.db.Process(ctx, onceOnly{cmd})
		return result(cmd)
	}
	master := server{Cmdable: s.db}
	if wait {
		var err error
		if master, err = s.masterOf(ctx, keys[0]); err != nil {
			return nil, err
		}
	}
	pipe := master.Pipeline()
	rest := pipe
	if master.address != "" {
		rest = s.db.Pipeline() // to the servers of the commands in beside
	}
	_ = pipe.Process(ctx, onceOnly{cmd}) // only queues the command
	others := queue(ctx, rest, beside)
	var waits []*redis.Cmd
	if wait {
		waits = queue(ctx, pipe, s.replicas.awaiting(keys[0], replicaTimeout))
	}
	execBoth(ctx, pipe, rest)
	reply, err := result(cmd)
	for _, other := range others {
		if err == nil && other.Err() != nil {
			err = unavailable(other.Err())
		}
	}
	if err == nil && wait {
		err = s.replicas.check(master.address, waits)
	}
	return reply, err
}

// execBoth sends the commands of two pipelines, which may be the same, at the same time. Each command has its own error.
func execBoth(ctx context.Context, pipe, rest redis.Pipeliner) {
	var work sync.WaitGroup
	if rest != pipe {
		work.Go(func() { _, _ = rest.Exec(ctx) })
	}
	_, _ = pipe.Exec(ctx)
	work.Wait()
}

// queue adds commands to a pipeline. It returns a redis.Cmd for each command, which holds the result after Exec.
func queue(ctx context.Context, pipe redis.Pipeliner, commands [][]any) []*redis.Cmd {
	queued := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		queued[i] = redis.NewCmd(ctx, command...)
		_ = pipe.Process(ctx, onceOnly{queued[i]})
	}
	return queued
}

// onceOnly is a command that the go-redis client never retries. Without onceOnly, the client of a Cluster would retry the
// command after a lost reply. The client still follows redirections.
type onceOnly struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (onceOnly) NoRetry() bool { return true }

func command(ctx context.Context, sc *script, byText bool, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	if byText {
		all = append(all, "eval", sc.compiled().text)
	} else {
		all = append(all, "evalsha", sc.compiled().digest)
	}
	all = append(all, len(keys))
	for i := range keys {
		all = append(all, &keys[i]) // a pointer, because a string in an any is an allocation
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// result returns the result of a script. A nil result is not an error.
func result(cmd *redis.Cmd) (any, error) {
	reply, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// isLost reports whether err means that the reply of the server was lost, so that the script may have run.
func isLost(err error) bool {
	var answered redis.Error
	return !errors.As(err, &answered) && !errors.Is(err, errBehind)
}

// The functions below convert the results of scripts. They return the zero value for a result of an unexpected type. Callers
// check the lengths of lists.

// text returns a string result, and "" for a result of another type.
func text(reply any) string {
	text, _ := reply.(string)
	return text
}

// integer returns a number result, and 0 for a result of another type.
func integer(reply any) int64 {
	n, _ := reply.(int64)
	return n
}

// list returns a list result, and nil for a result of another type.
func list(reply any) []any {
	list, _ := reply.([]any)
	return list
}

// outcome returns the first element of a list if the element is a string, else "". In most results, the first element names the
// outcome of the operation.
func outcome(list []any) string {
	if len(list) == 0 {
		return ""
	}
	return text(list[0])
}

// texts returns a result that is a list of strings. It reports whether the result is such a list.
func texts(reply any) ([]string, bool) {
	list, ok := reply.([]any)
	all := make([]string, len(list))
	for i, item := range list {
		text, isText := item.(string)
		all[i], ok = text, ok && isText
	}
	return all, ok
}

// boolean encodes a bool for scripts: "1" for true, "" for false.
func boolean(b bool) string {
	if b {
		return "1"
	}
	return ""
}
