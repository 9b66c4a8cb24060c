package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
)

const (
	// inboxSilence is how long an inbox may be silent, while it is asked each second, until its connection counts as lost:
	// one that was cut without a word looks just so.
	inboxSilence = 3 * time.Second
	// inboxRetry is how long after a connection was lost the next one is tried.
	inboxRetry = 100 * time.Millisecond
)

// inbox is where this node is poked: one connection for all its sessions, made anew whenever it is lost. What came while
// there was none is lost too, so the node is then told that anything may have changed.
type inbox struct {
	// static
	store      *Store
	poked      func(sessionID string)
	subscribed chan struct{} // closed when it hears for the first time

	mu         sync.Mutex
	connection *redis.PubSub // guarded by mu; nil while there is none
	heard      time.Time     // guarded by mu; when the server last said something
	known      bool          // guarded by mu; subscribed is closed
}

// await waits until the inbox hears.
func (in *inbox) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	select {
	case <-in.subscribed:
		return nil
	case <-ctx.Done():
		return fault(ctx.Err())
	}
}

// run hears until ctx is done.
func (in *inbox) run(ctx context.Context) {
	for ctx.Err() == nil {
		in.hear(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(inboxRetry):
		}
	}
}

// hear hears by one connection until it is lost, or ctx is done.
func (in *inbox) hear(ctx context.Context) {
	connection := in.store.db.Subscribe(ctx)
	hangUp := sync.OnceFunc(func() { _ = connection.Close() })
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // reading does not heed the context
	in.connect(connection)
	defer in.connect(nil)
	if connection.Subscribe(ctx, inboxChannel(in.store.node)) != nil {
		return
	}
	for {
		message, err := connection.Receive(ctx)
		if err != nil {
			return
		}
		in.mu.Lock()
		in.heard = time.Now()
		in.mu.Unlock()
		switch m := message.(type) {
		case *redis.Subscription:
			in.begin()
		case *redis.Message:
			in.take(m.Payload)
		}
	}
}

// connect notes the connection that is used.
func (in *inbox) connect(connection *redis.PubSub) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.connection, in.heard = connection, time.Now()
}

// begin notes that the inbox hears, from now on or again.
func (in *inbox) begin() {
	in.mu.Lock()
	first := !in.known
	in.known = true
	in.mu.Unlock()
	if first {
		close(in.subscribed)
		return
	}
	in.poked("")
}

// take does what a message says (schema.go).
func (in *inbox) take(payload string) {
	for word := range strings.SplitSeq(payload, " ") {
		sessionID, node, watches := strings.Cut(word, "+")
		switch {
		case strings.Contains(word, "!"):
			in.store.poke(word)
			continue
		case watches:
			in.store.viewers.add(sessionID, node, time.Now().Add(conversation.FollowLease))
		}
		if sessionID != "" {
			in.poked(sessionID)
		}
	}
}

// checkOn checks the connection each second, until ctx is done.
func (in *inbox) checkOn(ctx context.Context) {
	ticker := time.NewTicker(heartbeatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			in.check(ctx)
		}
	}
}

// check asks whether the connection lives, and gives it up where it has been silent for too long.
func (in *inbox) check(ctx context.Context) {
	in.mu.Lock()
	connection, silent := in.connection, time.Since(in.heard)
	in.mu.Unlock()
	if connection == nil {
		return
	}
	if silent > inboxSilence {
		_ = connection.Close()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	_ = connection.Ping(ctx) // where it fails, so does reading
}
