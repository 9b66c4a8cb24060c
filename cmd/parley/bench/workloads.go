package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The names of the workloads.
const (
	workloadStreams    = "streams"
	workloadRequests   = "requests"
	workloadViewers    = "viewers"
	workloadIdle       = "idle"
	workloadAdmissions = "admissions"
)

// Reply describes the replies of a run. The text of each message asks the model for such a reply. ScriptedModel obeys; another
// model may reply anything.
type Reply struct {
	Tokens   int
	Interval time.Duration // between two tokens; 0 for no pause
}

// message returns the message that asks for the reply.
func (r Reply) message() string { return fmt.Sprintf("say %d every %s", r.Tokens, r.Interval) }

// length returns the time that the model takes for the reply.
func (r Reply) length() time.Duration { return time.Duration(r.Tokens) * r.Interval }

// Streams runs n callers. In each turn, a caller opens a socket, subscribes to a session, sends a message, reads the reply, and
// closes the socket.
func Streams(ctx context.Context, o Options, n int, reply Reply) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	if err := r.sessions.fill(ctx, o.Sessions); err != nil {
		return nil, err
	}
	r.Warmup = max(o.Warmup, reply.length()+time.Second) // then all callers have begun, and replies end all the time
	report, err := r.drive(ctx, workloadStreams, n, reply.length(), func(ctx context.Context) error { return r.stream(ctx, reply) })
	return report.with(n, reply, "stream"), err
}

// with adds the settings of a run to its report, and the resident memory of each of n units.
func (r *Report) with(n int, reply Reply, unit string) *Report {
	if r == nil {
		return nil
	}
	r.Settings["number"], r.Settings["tokens"], r.Settings["interval"] = n, reply.Tokens, reply.Interval.String()
	if r.Server != nil && unit != "" {
		r.Server.Unit, r.Server.ResidentEach = unit, float64(r.Server.Resident-r.Server.ResidentIdle)/float64(n)
	}
	return r
}

// stream makes one turn on a socket of its own.
func (r *run) stream(ctx context.Context, reply Reply) error {
	session, err := r.sessions.take(ctx)
	if err != nil {
		return err
	}
	s, err := r.client.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, s.drop)
	defer stop()
	defer s.drop()
	if err := s.subscribe(session.id); err != nil {
		return err
	}
	begun := time.Now()
	send := map[string]string{"type": "send", "id": "2", "sessionId": session.id, "content": reply.message()}
	if err := s.write(send); err != nil {
		return err
	}
	got := 0
	end, err := s.follow(func(n int) {
		if got == 0 && r.measuring.Load() {
			r.first.observe(time.Since(begun))
		}
		got += n
		r.frames.Add(1)
		r.bytes.Add(int64(n))
	})
	if err != nil {
		return err
	}
	r.ended(begun, got, end)
	s.close()
	r.sessions.used(session)
	return nil
}

// sent is a message in a response.
type sent struct {
	Status  string
	Content string
	Usage   struct{ Completion int }
}

// Requests runs n callers that send messages with REST and wait for whole replies. window configures the sessions.
func Requests(ctx context.Context, o Options, n int, reply Reply, window Window) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	if err := r.fillHistories(ctx, window); err != nil {
		return nil, err
	}
	report, err := r.drive(ctx, workloadRequests, n, 0, func(ctx context.Context) error { return r.request(ctx, reply) })
	if report = report.with(n, reply, ""); report != nil {
		report.Settings["history"], report.Settings["policy"], report.Settings["maxTokens"] = window.History, window.Policy, window.MaxTokens
	}
	return report, err
}

// Window configures the context windows of sessions, and their messages before the run.
type Window struct {
	History   int    // messages of each session before the run
	Policy    string // retention policy; "" for the server's default
	MaxTokens int    // 0 for the server's default
}

// fillHistories creates the sessions, and sends messages until each session has window.History of them. Sessions with a history
// are never replaced.
func (r *run) fillHistories(ctx context.Context, window Window) error {
	config := make(map[string]any)
	if window.Policy != "" {
		config["retentionPolicy"] = window.Policy
	}
	if window.MaxTokens > 0 {
		config["maxTokens"] = window.MaxTokens
	}
	if len(config) > 0 {
		r.sessions.config = config
	}
	if err := r.sessions.fill(ctx, r.Options.Sessions); err != nil || window.History == 0 {
		return err
	}
	r.sessions.limit = 0
	fmt.Fprintf(r.Progress, "filling %d sessions with %d messages each\n", r.Options.Sessions, window.History)
	free := r.sessions.free
	return inParallel(ctx, len(free), func(ctx context.Context, i int) error {
		for range window.History / 2 { // a message and its reply
			if _, err := r.post(ctx, free[i].id, Reply{Tokens: 1}); err != nil {
				return err
			}
		}
		return nil
	})
}

// post sends a message and waits for the whole reply.
func (r *run) post(ctx context.Context, session string, reply Reply) (sent, error) {
	var m sent
	err := r.client.do(ctx, "POST", "/v1/sessions/"+session+"/messages", map[string]string{"content": reply.message()}, &m)
	return m, err
}

func (r *run) request(ctx context.Context, reply Reply) error {
	session, err := r.sessions.take(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	m, err := r.post(ctx, session.id, reply)
	if err != nil {
		return err
	}
	r.frames.Add(1)
	r.bytes.Add(int64(len(m.Content)))
	r.ended(begun, len(m.Content), ending{m.Status, m.Usage.Completion})
	r.sessions.used(session)
	return nil
}

// Admissions runs n callers that send invalid requests. The server checks the key and the rate limit before it refuses such a
// request. So Admissions measures the cost of these checks.
func Admissions(ctx context.Context, o Options, n int) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	report, err := r.drive(ctx, workloadAdmissions, n, 0, func(ctx context.Context) error { return r.admission(ctx, r.client.target.Key) })
	return report.with(n, Reply{}, ""), err
}

func (r *run) admission(ctx context.Context, key string) error {
	begun := time.Now()
	err := r.client.doWith(ctx, key, "POST", "/v1/sessions", struct{}{}, nil)
	if refused, ok := errors.AsType[*refusal](err); !ok || refused.status != http.StatusBadRequest {
		return fmt.Errorf("an invalid request got no 400: %w", orNil(err))
	}
	r.ended(begun, 0, ending{status: "completed"})
	return nil
}

// orNil returns err, or an error that says that a request was accepted if err is nil.
func orNil(err error) error {
	if err == nil {
		return errors.New("it was accepted")
	}
	return err
}

// Idle opens n sockets and measures the server's memory for them.
func Idle(ctx context.Context, o Options, n int) (*Report, error) {
	r, err := newRun(o)
	if err != nil {
		return nil, err
	}
	defer r.close(ctx)
	first, err := r.client.dial(ctx) // before the memory is read, because the server also allocates for its first socket
	if err != nil {
		return nil, err
	}
	defer first.drop()
	if err := r.watch(ctx, "idle, before the sockets", r.Warmup, nil); err != nil {
		return nil, err
	}
	idle := r.resident()
	sockets, err := r.open(ctx, n, "")
	defer sockets.drop()
	if err != nil {
		return nil, err
	}
	before, err := r.sample(ctx, false)
	if err != nil {
		return nil, err
	}
	if err := r.watch(ctx, fmt.Sprintf("idle, %d sockets", n), r.Duration, nil); err != nil {
		return nil, err
	}
	after, err := r.sample(ctx, true)
	if err != nil {
		return nil, err
	}
	report := r.report(workloadIdle, before, after, idle, []int64{after.server.resident}).with(n, Reply{}, "socket")
	if lost := sockets.lost.Load(); lost > 0 {
		report.Failed, report.Errors = lost, []string{"sockets were closed by the server"}
	}
	return report, nil
}

// sockets holds open sockets.
type sockets struct {
	all     []*socket
	lost    atomic.Int64 // sockets that ended before drop
	dropped atomic.Bool
	readers sync.WaitGroup // of sockets without a subscription
}

// drop closes the sockets, and waits for their readers.
func (s *sockets) drop() {
	s.dropped.Store(true)
	for _, one := range s.all {
		if one != nil {
			one.drop()
		}
	}
	s.readers.Wait()
}

// open opens n sockets. If session is "", a goroutine reads each of them, so that pings are answered. Otherwise they are
// subscribed to the session, and the caller must read them.
func (r *run) open(ctx context.Context, n int, session string) (*sockets, error) {
	opened := &sockets{all: make([]*socket, n)}
	err := inParallel(ctx, n, func(_ context.Context, i int) (err error) { // the sockets outlive inParallel
		if opened.all[i], err = r.client.dial(ctx); err != nil {
			return err
		}
		if session != "" {
			return opened.all[i].subscribe(session)
		}
		opened.readers.Go(func() {
			if _, err := opened.all[i].await("nothing"); err != nil && !opened.dropped.Load() {
				opened.lost.Add(1)
			}
		})
		return nil
	})
	return opened, err
}
