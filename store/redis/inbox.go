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
	// The inbox's connection counts as lost after inboxTimeout without a reply, although it is pinged each heartbeatInterval. A
	// network that drops packets closes no connection, so silence is the only sign.
	inboxTimeout = 3 * time.Second
	// inboxRetry is the pause between a lost connection and the next attempt.
	inboxRetry = 100 * time.Millisecond
)

// inbox receives this node's wake-ups: one subscription for all its sessions, renewed whenever the connection is lost. Wake-ups
// are lost meanwhile, so afterwards it calls notify with "": any session may have changed.
type inbox struct {
	// static
	store      *Store
	notify     func(sessionID string)
	subscribed chan struct{} // closed with the first subscription

	mu         sync.Mutex
	connection *redis.PubSub // guarded by mu; nil while there is none
	heard      time.Time     // guarded by mu; when the server last sent a message or a reply to a ping
	known      bool          // guarded by mu; whether subscribed is closed
}

// await waits until the inbox has subscribed.
func (in *inbox) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case <-in.subscribed:
		return nil
	case <-ctx.Done():
		return fault(ctx.Err())
	}
}

// run receives wake-ups, over one connection after the other, until ctx is done.
func (in *inbox) run(ctx context.Context) {
	for ctx.Err() == nil {
		in.receive(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(inboxRetry):
		}
	}
}

// receive receives wake-ups over one connection until the connection is lost or ctx is done.
func (in *inbox) receive(ctx context.Context) {
	connection := in.store.db.Subscribe(ctx)
	disconnect := sync.OnceFunc(func() { _ = connection.Close() })
	defer disconnect()
	defer context.AfterFunc(ctx, disconnect)() // Receive ignores the context while it reads
	in.setConnection(connection)
	defer in.setConnection(nil)
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
			in.subscribe()
		case *redis.Message:
			in.deliver(m.Payload)
		}
	}
}

// setConnection sets the current connection, nil for none.
func (in *inbox) setConnection(connection *redis.PubSub) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.connection, in.heard = connection, time.Now()
}

// subscribe closes subscribed at the first subscription, and notifies the node of any session at later ones.
func (in *inbox) subscribe() {
	in.mu.Lock()
	first := !in.known
	in.known = true
	in.mu.Unlock()
	if first {
		close(in.subscribed)
		return
	}
	in.notify("")
}

// deliver handles the words of a message (schema.go).
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

// checkLoop checks the connection each heartbeatInterval, until ctx is done.
func (in *inbox) checkLoop(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
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

// check pings the connection, or closes it after inboxTimeout of silence.
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
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_ = connection.Ping(ctx) // if it fails, so does reading
}
