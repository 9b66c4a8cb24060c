package redis

import (
	"context"
	"sync/atomic"
	"testing"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/store/redis/redistest"
	"parley/store/storetest"
	"parley/stream"
)

// TestStore_TwoNodes runs the suite storetest on two nodes. Calls go to the two nodes alternately, and must have the
// same results as on one node. The nodes log in as the Redis user that web/guides/security.md describes.
func TestStore_TwoNodes(t *testing.T) {
	servers := []*redistest.Server{shared.Server(t)}
	url := userOfGuide(t, servers[0].URL, servers)
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		nodes := &alternating{nodes: []*Store{open(t, url), open(t, url)}}
		for _, s := range nodes.nodes {
			must(t, s.Join(t.Context(), func(string) {}))
		}
		return storetest.Backend{Conversation: nodes, Keys: nodes.nodes[0]}
	})
	wantNothingDenied(t, servers, url)
}

// alternating is a store that passes calls to its nodes alternately.
type alternating struct {
	nodes []*Store
	calls atomic.Int64
}

func (n *alternating) next() *Store { return n.nodes[int(n.calls.Add(1))%len(n.nodes)] }

func (n *alternating) CreateSession(ctx context.Context, o conversation.Owner, session conversation.NewSession) (conversation.SessionCreated, error) {
	return n.next().CreateSession(ctx, o, session)
}

func (n *alternating) Session(ctx context.Context, o conversation.Owner, id string) (conversation.Session, error) {
	return n.next().Session(ctx, o, id)
}

func (n *alternating) UpdateSession(ctx context.Context, o conversation.Owner, id string, change func(*conversation.Session) error) (conversation.Session, error) {
	return n.next().UpdateSession(ctx, o, id, change)
}

func (n *alternating) Sessions(ctx context.Context, o conversation.Owner, query conversation.SessionQuery) (conversation.SessionPage, error) {
	return n.next().Sessions(ctx, o, query)
}

func (n *alternating) DeleteSession(ctx context.Context, o conversation.Owner, id string) (conversation.Session, error) {
	return n.next().DeleteSession(ctx, o, id)
}

func (n *alternating) Messages(ctx context.Context, o conversation.Owner, id string, query conversation.MessageQuery) (conversation.MessagePage, error) {
	return n.next().Messages(ctx, o, id, query)
}

func (n *alternating) Message(ctx context.Context, o conversation.Owner, id, messageID string) (conversation.Message, error) {
	return n.next().Message(ctx, o, id, messageID)
}

func (n *alternating) ClearMessages(ctx context.Context, o conversation.Owner, id, waiter string) (conversation.Cleared, error) {
	return n.next().ClearMessages(ctx, o, id, waiter)
}

func (n *alternating) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	return n.next().BeginTurn(ctx, o, turn)
}

func (n *alternating) LeaveQueue(ctx context.Context, o conversation.Owner, id, waiter string) error {
	return n.next().LeaveQueue(ctx, o, id, waiter)
}

func (n *alternating) EndTurn(ctx context.Context, key conversation.TurnKey, reply conversation.Message, timing conversation.Timing) (conversation.Message, error) {
	return n.next().EndTurn(ctx, key, reply, timing)
}

func (n *alternating) Journal(ctx context.Context, batch []stream.Segment[conversation.TurnKey]) error {
	return n.next().Journal(ctx, batch)
}

func (n *alternating) EndOrphans(ctx context.Context, count func(text string) int) (int, error) {
	return n.next().EndOrphans(ctx, count)
}

func (n *alternating) RemoveExpired(ctx context.Context) ([]conversation.OwnedSession, conversation.Time, error) {
	return n.next().RemoveExpired(ctx)
}

func (n *alternating) Usage(ctx context.Context, o conversation.Owner, from, to usage.Hour) (conversation.UsageSpan, error) {
	return n.next().Usage(ctx, o, from, to)
}

func (n *alternating) Summary(ctx context.Context, o conversation.Owner, id string) (conversation.Session, conversation.Summary, error) {
	return n.next().Summary(ctx, o, id)
}

func (n *alternating) Context(ctx context.Context, o conversation.Owner, id string, tokens int) (conversation.Context, error) {
	return n.next().Context(ctx, o, id, tokens)
}

func (n *alternating) MessagesByID(ctx context.Context, o conversation.Owner, id string, ids []string) ([]conversation.Message, error) {
	return n.next().MessagesByID(ctx, o, id, ids)
}

func (n *alternating) SaveSummary(ctx context.Context, o conversation.Owner, id, after string, summary conversation.Summary, u conversation.Usage) error {
	return n.next().SaveSummary(ctx, o, id, after, summary, u)
}

func (n *alternating) SetVectors(ctx context.Context, o conversation.Owner, id string, vectors []conversation.ExchangeVector) error {
	return n.next().SetVectors(ctx, o, id, vectors)
}
