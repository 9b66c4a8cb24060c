package redis

import (
	"context"
	"errors"
	"slices"

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
	counted := false
	if sc.admits() {
		admission = auth.AdmissionOf(ctx)
		counted = admission != nil && admission.Pending()
		keys, args = withAdmission(sc, admission, tag, keys, args)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if sc.has(durable) {
		if err := s.probeReplicas(ctx); err != nil {
			return nil, err
		}
		beside = append(beside, s.replicas.awaiting(replicaTimeout)...)
	}
	reply, err := s.send(ctx, sc, keys, beside, args)
	if err != nil && sc.idempotent() && !counted && ctx.Err() == nil && isLost(err) {
		reply, err = s.send(ctx, sc, keys, beside, args)
	}
	if errors.Is(err, conversation.ErrUnavailable) { // a command in beside failed
		return nil, err
	}
	if err != nil {
		return nil, sc.fault(err)
	}
	if sc.admits() {
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

// call is a script with its keys and arguments, to be run in a pipeline.
type call struct {
	script *script
	keys   []string
	args   []any
}

// runAll runs scripts that have neither admits nor reserves, in one round trip to each server. It returns a result or an error
// for each call. If a server does not know a script, and so has not run it, a second round trip sends the script's text.
func (s *Store) runAll(ctx context.Context, calls []call) ([]any, []error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	replies, errs := make([]any, len(calls)), make([]error, len(calls))
	if slices.ContainsFunc(calls, func(c call) bool { return c.script.has(durable) }) {
		if err := s.probeReplicas(ctx); err != nil {
			for i := range errs {
				errs[i] = err
			}
			return replies, errs
		}
	}
	missing := s.pipeline(ctx, calls, replies, errs, nil)
	if len(missing) > 0 {
		s.pipeline(ctx, calls, replies, errs, missing)
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, conversation.ErrUnavailable) {
			errs[i] = calls[i].script.fault(err)
		}
	}
	return replies, errs
}

// pipeline runs calls in one pipeline. If numbers is nil, it runs all calls and sends the digests of the scripts. Otherwise
// numbers holds the indices of the calls to run, and pipeline sends the texts of the scripts. It returns the indices of the calls
// that did not run because the server does not know the script.
func (s *Store) pipeline(ctx context.Context, calls []call, replies []any, errs []error, numbers []int) (missing []int) {
	byText := numbers != nil
	if !byText {
		for i := range calls {
			numbers = append(numbers, i)
		}
	}
	pipe := s.db.Pipeline()
	commands, isDurable := make([]*redis.Cmd, len(numbers)), false
	for at, i := range numbers {
		c := calls[i]
		commands[at] = command(ctx, c.script, byText, c.keys, c.args)
		_ = pipe.Process(ctx, onceOnly{commands[at]}) // only queues the command
		isDurable = isDurable || c.script.has(durable)
	}
	var waits []*redis.Cmd
	if isDurable {
		waits = queue(ctx, pipe, s.replicas.awaiting(replicaTimeout))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	behind := s.checkAll(waits)
	for at, i := range numbers {
		replies[i], errs[i] = result(commands[at])
		if errs[i] == nil && calls[i].script.has(durable) {
			errs[i] = behind
		}
		if redis.HasErrorPrefix(errs[i], "NOSCRIPT") {
			missing = append(missing, i)
		}
	}
	return missing
}

// send sends the digest of a script. If the server does not know the script, send also sends the script's text.
func (s *Store) send(ctx context.Context, sc *script, keys []string, beside [][]any, args []any) (any, error) {
	reply, err := s.sendCommand(ctx, command(ctx, sc, false, keys, args), beside)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.sendCommand(ctx, command(ctx, sc, true, keys, args), beside)
	}
	return reply, err
}

// sendCommand sends cmd and the commands in beside, in one pipeline. It returns the error of cmd. If cmd succeeds, it returns the
// first error of beside.
func (s *Store) sendCommand(ctx context.Context, cmd *redis.Cmd, beside [][]any) (any, error) {
	if len(beside) == 0 {
		_ = s.db.Process(ctx, onceOnly{cmd})
		return result(cmd)
	}
	pipe := s.db.Pipeline()
	_ = pipe.Process(ctx, onceOnly{cmd}) // only queues the command
	others := queue(ctx, pipe, beside)
	_, _ = pipe.Exec(ctx) // each command has its own error
	reply, err := result(cmd)
	if err != nil {
		return nil, err
	}
	return reply, s.checkAll(others)
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

// checkAll returns the first error of commands that were sent in the same pipeline as scripts.
func (s *Store) checkAll(commands []*redis.Cmd) (first error) {
	for _, cmd := range commands {
		if err := s.replicas.check(cmd); first == nil {
			first = err
		}
	}
	return first
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
	for _, key := range keys {
		all = append(all, key)
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
