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
	// The node pings the inbox's connection at each heartbeatInterval. The connection counts as lost after inboxTimeout without a
	// reply. A network that drops packets does not close connections, so silence is the only sign.
	inboxTimeout = 3 * time.Second
	// inboxRetry is the pause after a lost connection, before the node connects again.
	inboxRetry = 100 * time.Millisecond
)

// inbox receives this node's wake-ups by one subscription for all sessions. If the connection is lost, the inbox connects again.
// Wake-ups are lost meanwhile, so it then calls notify with "", which means that any session may have changed.
type inbox struct {
	// static
	store      *Store
	notify     func(sessionID string)
	subscribed chan struct{} // closed when Redis confirms the first subscription

	mu         sync.Mutex
	connection *redis.PubSub // guarded by mu; nil while there is no connection
	heard      time.Time     // guarded by mu; when the server last sent a message or a reply to a ping
	known      bool          // guarded by mu; whether subscribed is closed
	failed     error         // guarded by mu; the error that ended the last connection; nil if none has ended
}

// await waits until Redis has confirmed the first subscription. If that takes too long, it returns the error of the last
// connection.
func (in *inbox) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, in.store.timeout)
	defer cancel()
	select {
	case <-in.subscribed:
		return nil
	case <-ctx.Done():
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failed != nil {
		return fault(in.failed)
	}
	return fault(ctx.Err())
}

// run receives wake-ups until ctx is done. It connects again whenever the connection is lost.
func (in *inbox) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := in.receive(ctx)
		in.mu.Lock()
		in.failed = err
		in.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(inboxRetry):
		}
	}
}

// receive opens a connection, and receives wake-ups until the connection is lost or ctx is done. It returns the error
// that ended the connection.
func (in *inbox) receive(ctx context.Context) error {
	connection := in.store.db.Subscribe(ctx)
	disconnect := sync.OnceFunc(func() { _ = connection.Close() })
	defer disconnect()
	defer context.AfterFunc(ctx, disconnect)() // Receive ignores the context while it reads
	in.setConnection(connection)
	defer in.setConnection(nil)
	if err := connection.Subscribe(ctx, inboxChannel(in.store.node)); err != nil {
		return err
	}
	for {
		message, err := connection.Receive(ctx)
		if err != nil {
			return err
		}
		in.mu.Lock()
		in.heard = time.Now()
		in.mu.Unlock()
		switch m := message.(type) {
		case *redis.Subscription:
			in.subscribe()
		case *redis.Message:
			in.deliver(m.Payload)
		}
	}
}

// setConnection sets the current connection; nil means that there is none.
func (in *inbox) setConnection(connection *redis.PubSub) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.connection, in.heard = connection, time.Now()
}

// subscribe handles a confirmed subscription. The first time, it closes subscribed. Later it calls notify with "", because
// wake-ups were lost, and it doubts the last writes.
func (in *inbox) subscribe() {
	in.mu.Lock()
	first := !in.known
	in.known = true
	in.mu.Unlock()
	if first {
		close(in.subscribed)
		return
	}
	in.store.doubt()
	in.notify("")
}

// deliver handles the words of a message in this node's inbox (schema.go lists the words).
func (in *inbox) deliver(payload string) {
	for word := range strings.SplitSeq(payload, " ") {
		sessionID, node, follows := strings.Cut(word, followerMark)
		switch {
		case strings.Contains(word, waiterMark):
			in.store.waiters.wake(word)
			continue
		case follows:
			in.store.followers.add(sessionID, node, time.Now().Add(conversation.FollowLease))
		}
		if sessionID != "" {
			in.notify(sessionID)
		}
	}
}

// check pings the connection. After inboxTimeout of silence, it closes the connection instead.
func (in *inbox) check(ctx context.Context) {
	in.mu.Lock()
	connection, silent := in.connection, time.Since(in.heard)
	in.mu.Unlock()
	if connection == nil {
		return
	}
	if silent > inboxTimeout {
		_ = connection.Close()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stepOf(in.store.timeout))
	defer cancel()
	_ = connection.Ping(ctx) // if the ping fails, receive gets an error too
}
