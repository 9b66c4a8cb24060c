package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
)

// sources are the scripts: one file an operation, which says at its head what KEYS, ARGV and the result are. A script
// returns what it refuses as a value; what it raises is a fault.
//
//go:embed lua/*.lua
var sources embed.FS

// script is an operation on the store. It is immutable.
type script struct {
	name       string
	text       string
	digest     string // by which a server knows the text
	admits     bool   // carries the admission of the request that it is run for
	reserves   bool   // uses the admission's key and figures even if the request was admitted before
	wakes      bool   // returns {its answer, whom it told}
	idempotent bool   // can be run again after its reply was lost: to the same end, with the same answer
	durable    bool   // writes what a fail-over must not lose (replicas.go)
}

// What a script can be, for newScript.
const (
	reads      = 1 << iota // writes nothing: without admissions, it is run even where the server cannot write; idempotent
	counts                 // uses the clock and the windows of lua/window.lua
	admits                 // carries an admission (lua/admission.lua); counts
	reserves               // admits, and uses reserve
	idempotent             // see script
	sessions               // uses lua/session.lua and lua/queue.lua; counts
	turns                  // sessions, and uses lua/turn.lua
	durable                // see script
	wakes                  // sessions, and may tell those who wait (lua/queue.lua): run has those of this node told
)

// newScript returns the script of that file.
func newScript(name string, is int) *script { return compile(name, source(name), is) }

// compile returns the script of that text.
//
// Each begins with a shebang: by it the server refuses a script whole, before it has done anything, where it is out of
// memory, a replica, or cannot save; and a key of another slot is an error.
func compile(name, text string, is int) *script {
	header := "#!lua\n"
	admission := is&(admits|reserves) != 0
	if is&reads != 0 && !admission { // which writes
		header = "#!lua flags=no-writes\n"
	}
	if is&wakes != 0 {
		text = "local function operate(KEYS, ARGV)\n" + text + "end\nreturn {operate(KEYS, ARGV), WOKEN}\n"
	}
	if admission {
		text = source("admission") + "return admitted(function(KEYS, ARGV)\n" + text + "end)\n"
	}
	for _, library := range []struct {
		name string
		of   int
	}{
		{"turn", turns}, {"queue", turns | sessions}, {"session", turns | sessions},
		{"usage", turns | sessions | admits | reserves}, {"window", turns | sessions | counts | admits | reserves},
	} { // from the last to the first
		if is&library.of != 0 {
			text = source(library.name) + text
		}
	}
	text = header + text
	digest := sha1.Sum([]byte(text))
	return &script{
		name: name, text: text, digest: hex.EncodeToString(digest[:]),
		admits: admission, reserves: is&reserves != 0, wakes: is&wakes != 0, idempotent: is&(reads|idempotent) != 0,
		durable: is&durable != 0,
	}
}

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(text)
}

var (
	pingScript  = newScript("ping", idempotent|durable)
	admitScript = newScript("admit", admits)
	checkScript = newScript("admit", reserves|idempotent)
)

// run runs a script, in one trip, and returns what it returned: nil, an int64, a string or a []any of these. tag is that of all keys. It
// is the one way to the server for whatever has an effect.
//
// Where the script carries admissions, and ctx has one that is pending, it is admitted before: the error is then
// auth.ErrInvalidToken or an *auth.LimitError if it is refused, and nothing was done. Other errors are those of fault. A
// script whose reply was lost may have run; it is run again, once, only if it is idempotent and counts no request. One that is
// durable has run where it is unavailable because replicas are behind, but not where they had been before.
func (s *Store) run(ctx context.Context, sc *script, tag string, keys []string, args ...any) (any, error) {
	return s.runWith(ctx, sc, tag, keys, nil, args...)
}

// runWith runs a script, as run does, and commands beside it, after it in the same trip; in a Cluster, those of another node
// at the same time. Where one of these fails and the script does not, the error is conversation.ErrUnavailable.
func (s *Store) runWith(ctx context.Context, sc *script, tag string, keys []string, beside [][]any, args ...any) (any, error) {
	var admission *auth.Admission
	counted := false
	if sc.admits {
		admission = auth.AdmissionOf(ctx)
		counted = admission != nil && admission.Pending()
		keys, args = withAdmission(sc, admission, tag, keys, args)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if sc.durable {
		if err := s.probeReplicas(ctx); err != nil {
			return nil, err
		}
		beside = append(beside, s.replicas.awaiting(replicaWait)...)
	}
	reply, err := s.once(ctx, sc, keys, beside, args)
	if err != nil && sc.idempotent && !counted && ctx.Err() == nil && isLost(err) {
		reply, err = s.once(ctx, sc, keys, beside, args)
	}
	if errors.Is(err, conversation.ErrUnavailable) { // what was sent beside it failed
		return nil, err
	}
	if err != nil {
		return nil, sc.fault(err)
	}
	if sc.admits {
		if reply, err = s.decide(ctx, sc, admission, reply); err != nil {
			return nil, err
		}
	}
	if !sc.wakes {
		return reply, nil
	}
	parts := list(reply)
	if len(parts) != 2 {
		return nil, sc.malformed()
	}
	for _, woken := range list(parts[1]) {
		s.poke(text(woken))
	}
	return parts[0], nil
}

// call is a script that is to be run in a pipeline.
type call struct {
	script *script
	keys   []string
	args   []any
}

// runAll runs scripts that carry no admission, in one trip a server, and returns what each returned, or its error. One that the
// server did not know, and so did not run, is run again.
func (s *Store) runAll(ctx context.Context, calls []call) ([]any, []error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	replies, errs := make([]any, len(calls)), make([]error, len(calls))
	if slices.ContainsFunc(calls, func(c call) bool { return c.script.durable }) {
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

// pipeline runs the calls with those numbers by their texts, or all by their digests if there are none; it returns the
// numbers of those that the server did not know.
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
		_ = pipe.Process(ctx, onceOnly{commands[at]}) // queues it
		isDurable = isDurable || c.script.durable
	}
	var waits []*redis.Cmd
	if isDurable {
		waits = queue(ctx, pipe, s.replicas.awaiting(replicaWait))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	behind := s.checkAll(waits)
	for at, i := range numbers {
		replies[i], errs[i] = result(commands[at])
		if errs[i] == nil && calls[i].script.durable {
			errs[i] = behind
		}
		if redis.HasErrorPrefix(errs[i], "NOSCRIPT") {
			missing = append(missing, i)
		}
	}
	return missing
}

// once sends a script by its digest and, if the server does not know it, by its text.
func (s *Store) once(ctx context.Context, sc *script, keys []string, beside [][]any, args []any) (any, error) {
	reply, err := s.send(ctx, command(ctx, sc, false, keys, args), beside)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, command(ctx, sc, true, keys, args), beside)
	}
	return reply, err
}

// send sends a command, with others beside it. The error is its own or, if it has none, the first of the others'.
func (s *Store) send(ctx context.Context, cmd *redis.Cmd, beside [][]any) (any, error) {
	if len(beside) == 0 {
		_ = s.db.Process(ctx, onceOnly{cmd})
		return result(cmd)
	}
	pipe := s.db.Pipeline()
	_ = pipe.Process(ctx, onceOnly{cmd}) // queues it
	others := queue(ctx, pipe, beside)
	_, _ = pipe.Exec(ctx) // each command has its own error
	reply, err := result(cmd)
	if err != nil {
		return nil, err
	}
	return reply, s.checkAll(others)
}

// onceOnly is a command that the client of a Cluster, too, sends only once: it follows redirections, but does not try again
// after a reply that did not come.
type onceOnly struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (onceOnly) NoRetry() bool { return true }

func command(ctx context.Context, sc *script, byText bool, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	if byText {
		all = append(all, "eval", sc.text)
	} else {
		all = append(all, "evalsha", sc.digest)
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

// result returns what a script returned; nil is no error.
func result(cmd *redis.Cmd) (any, error) {
	reply, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// isLost reports whether an error says that no reply came.
func isLost(err error) bool {
	var answered redis.Error
	return !errors.As(err, &answered) && !errors.Is(err, errBehind)
}

// fault returns the error of a script that did not return.
func (sc *script) fault(err error) error {
	if text := err.Error(); strings.HasPrefix(text, "ERR ") { // a mistake of ours: it names the line
		return fmt.Errorf("redis: the script %s: %w", sc.name, err)
	}
	return fault(err)
}

// withAdmission puts the keys and arguments of an admission, which may be nil, in front (lua/admission.lua).
func withAdmission(sc *script, a *auth.Admission, tag string, keys []string, args []any) ([]string, []any) {
	what, keyID, secret, day := "", "", "", any("")
	var figures limit.TierLimits
	if a != nil {
		figures, keyID = a.Limits, a.Principal.KeyID
		if a.Principal.Secret != (auth.Hash{}) {
			secret = hashText(a.Principal.Secret)
		}
		if a.Principal.Mode == auth.Test {
			day = limit.TestKeyRequestsPerDay
		}
		switch {
		case sc == checkScript:
			what = "check"
		case a.Pending():
			what = "count"
		case sc.reserves:
			what = "check"
		}
	}
	front := []string{keyKey(tag, keyID), requestsKey(tag), tokensKey(tag), dayKey(tag)}
	frontArgs := []any{what, secret, figures.RequestsPerMinute, figures.TokensPerMinute, day}
	return append(front, keys...), append(frontArgs, args...)
}

// decide reads the admission's part of a reply, and returns the operation's.
func (s *Store) decide(ctx context.Context, sc *script, a *auth.Admission, reply any) (any, error) {
	parts, _ := reply.([]any)
	if len(parts) == 0 {
		return nil, sc.malformed()
	}
	said, _ := parts[0].([]any)
	if len(said) == 0 {
		return nil, sc.malformed()
	}
	switch said[0] {
	case "none":
	case "key":
		s.forget(ctx, a.Principal.Secret)
		return nil, auth.ErrInvalidToken
	default:
		decision, ok := decisionOf(a, said[1:])
		if !ok {
			return nil, sc.malformed()
		}
		a.SetDecision(decision)
		if !decision.Admitted() {
			return nil, &auth.LimitError{Decision: decision}
		}
	}
	if len(parts) < 2 {
		return nil, nil
	}
	return parts[1], nil
}

// decisionOf returns what the figures of the limits mean: used, reset and wait of each.
func decisionOf(a *auth.Admission, figures []any) (limit.Decision, bool) {
	limits := []limit.Status{
		{By: limit.ByRequests, Limit: a.Limits.RequestsPerMinute}, {By: limit.ByDay, Limit: limit.TestKeyRequestsPerDay},
	}
	if len(figures) != 3 && len(figures) != 6 {
		return limit.Decision{}, false
	}
	standings := limits[:len(figures)/3]
	for i := range standings {
		standing, ok := standingOf(standings[i], figures[3*i:])
		if !ok {
			return limit.Decision{}, false
		}
		standings[i] = standing
	}
	return limit.Decide(standings...), true
}

// tokensRefused returns the error of a reservation that was refused: by the limit of that many tokens a minute, which
// stands as reserve (lua/window.lua) returned.
func tokensRefused(perMinute int, figures any) (*auth.LimitError, error) {
	all, _ := figures.([]any)
	if len(all) != 3 {
		return nil, errRecord
	}
	s, ok := standingOf(limit.Status{By: limit.ByTokens, Limit: perMinute}, all)
	if !ok {
		return nil, errRecord
	}
	return &auth.LimitError{Decision: limit.Decide(s)}, nil
}

// standingOf returns a standing with the first three figures: used, reset and wait.
func standingOf(s limit.Status, figures []any) (limit.Status, bool) {
	used, ok1 := figures[0].(int64)
	reset, ok2 := figures[1].(int64)
	wait, ok3 := figures[2].(int64)
	s.Used, s.Reset, s.Wait = int(used), limit.Second(reset), int(wait)
	return s, ok1 && ok2 && ok3
}

func (sc *script) malformed() error {
	return fmt.Errorf("redis: the script %s returned what it never should", sc.name)
}
