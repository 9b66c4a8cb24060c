package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"parley/conversation"
	"parley/conversation/usage"
	"parley/conversation/window"
	"parley/store/embedded"
	"parley/store/redis"
	"parley/store/redis/redistest"
	"parley/stream"
)

// The test runs the same random operations on both stores and compares every result. Before the comparison, it replaces each id
// by a number: 0 for the first id of the store, 1 for the second id, and so on. It does not compare times.
func TestStores_RandomOperations_SameResults(t *testing.T) {
	t.Parallel()
	file, err := embedded.Open(filepath.Join(t.TempDir(), "parley.db"), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := redis.Open(t.Context(), redistest.Single(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(file.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		owner := conversation.Owner{Account: "account " + conversation.RandomText(12), Mode: conversation.Test}
		p := &pair{t: t, r: r, owner: owner, stores: [2]*side{newSide(file), newSide(server)}}
		r.Repeat(map[string]func(*rapid.T){
			"create": p.create, "session": p.session, "list": p.list, "delete": p.delete, "update": p.update, "messages": p.messages, "message": p.message,
			"clear": p.clear, "begin": p.begin, "begin, for twice the share": p.begin, "retry": p.retry, "leave": p.leave, "end": p.end, "end live": p.endLive,
			"journal": p.journal, "usage": p.usage, "vectors": p.vectors, "context": p.context, "": func(*rapid.T) {},
		})
	})
}

// side holds one of the two stores, and the ids and turn keys that it has returned.
type side struct {
	store conversation.Store
	names map[string]string      // by id: "#" and the index of the id in ids
	ids   []string               // all ids that the store has returned, in this order
	keys  []conversation.TurnKey // of the turns that began
	asked []string               // ids of the messages that began these turns, in the same order
}

func newSide(s conversation.Store) *side { return &side{store: s, names: make(map[string]string)} }

var idPattern, timePattern = regexp.MustCompile(`(session|msg)_[0-9A-Za-z]{16}`), regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"`)

// plain encodes the result and the error of an operation as text. It replaces each id by its name in s.names, and each time by T.
func (s *side) plain(result any, err error) string {
	text, jsonErr := json.Marshal(result)
	if jsonErr != nil {
		return jsonErr.Error()
	}
	named := idPattern.ReplaceAllStringFunc(string(text), func(id string) string {
		if s.names[id] == "" {
			s.names[id] = fmt.Sprint("#", len(s.ids))
			s.ids = append(s.ids, id)
		}
		return s.names[id]
	})
	return fmt.Sprint(timePattern.ReplaceAllString(named, `"T"`), " ", err)
}

// pair holds the embedded store and the Redis store, and the sessions and turns that the test has created in both so far.
type pair struct {
	t      *testing.T
	r      *rapid.T
	owner  conversation.Owner
	stores [2]*side

	sessions []int // index of each created session's id in side.ids

	turns   []conversation.NewTurn // turns that were queued; SessionID contains a name from side.names, not an id
	waiters int
}

// both runs an operation on both stores and fails the test if the results differ.
func (p *pair) both(r *rapid.T, what string, do func(s *side) (any, error)) {
	first, second := p.stores[0], p.stores[1]
	one := first.plain(do(first))
	if two := second.plain(do(second)); one != two {
		r.Fatalf("%s\nembedded:  %s\nRedis:     %s", what, one, two)
	}
}

// id draws an id that both stores have returned, or an unknown id. It returns a function, because the id differs between the
// stores.
func (p *pair) id(r *rapid.T, prefix string) func(s *side) string {
	n := rapid.IntRange(-1, len(p.stores[0].ids)-1).Draw(r, "id")
	if n < 0 {
		return func(*side) string { return prefix + "0000000000000000" }
	}
	return func(s *side) string { return s.ids[n] }
}

// aSession draws the id of a session that the test has created. Sometimes it calls id instead, which draws any id.
func (p *pair) aSession(r *rapid.T) func(s *side) string {
	n := rapid.IntRange(-1, len(p.sessions)-1).Draw(r, "session")
	if n < 0 {
		return p.id(r, conversation.SessionPrefix)
	}
	return func(s *side) string { return s.ids[p.sessions[n]] }
}

func request(r *rapid.T) *conversation.Idempotency {
	n := rapid.IntRange(0, 8).Draw(r, "request")
	if n > 3 {
		return nil
	}
	return &conversation.Idempotency{Key: fmt.Sprint("key ", n/2), Digest: [32]byte{byte(n)}}
}

func (p *pair) create(r *rapid.T) {
	session := conversation.NewSession{
		UserID: fmt.Sprint("user_000000000000000", rapid.IntRange(0, 1).Draw(r, "user")), Idempotency: request(r),
		Context: conversation.ContextConfig{
			MaxTokens: rapid.SampledFrom([]int{64, 200, 4096}).Draw(r, "window"), CompressionEnabled: rapid.Bool().Draw(r, "compression"),
			RetentionPolicy: rapid.SampledFrom([]conversation.RetentionPolicy{conversation.FIFO, conversation.Semantic}).Draw(r, "policy"),
		},
	}
	if rapid.Bool().Draw(r, "metadata") {
		session.Metadata = json.RawMessage(`{"a":[1,"<é>"]}`)
	}
	p.settings(r, &session)
	before := len(p.stores[0].ids)
	p.both(r, "CreateSession", func(s *side) (any, error) { return s.store.CreateSession(p.t.Context(), p.owner, session) })
	if len(p.stores[0].ids) > before {
		p.sessions = append(p.sessions, before)
	}
}

// settings draws instructions and a configuration of the model.
func (p *pair) settings(r *rapid.T, session *conversation.NewSession) {
	session.InstructionTokens = rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(r, "instructions")
	session.Instructions = strings.Repeat("é", session.InstructionTokens)
	temperature, seed := 0.0, int64(0)
	session.Model = rapid.SampledFrom([]conversation.ModelConfig{
		{}, {}, {Model: "fast", Temperature: &temperature, Stop: []string{"\x00"}}, {MaxOutputTokens: 10, Seed: &seed, ReasoningEffort: "low"},
	}).Draw(r, "model")
}

// update changes the metadata, the instructions, the model and the policy.
func (p *pair) update(r *rapid.T) {
	var wanted conversation.NewSession
	p.settings(r, &wanted)
	if rapid.Bool().Draw(r, "metadata") {
		wanted.Metadata = json.RawMessage(`{"b":[]}`)
	}
	maxTokens := rapid.SampledFrom([]int{64, 200, 4096}).Draw(r, "window")
	policies := []conversation.RetentionPolicy{conversation.FIFO, conversation.Priority, conversation.Semantic}
	policy := rapid.SampledFrom(policies).Draw(r, "policy")
	refused := rapid.IntRange(0, 4).Draw(r, "refuse") == 0
	id := p.aSession(r)
	p.both(r, "UpdateSession", func(s *side) (any, error) {
		return s.store.UpdateSession(p.t.Context(), p.owner, id(s), func(session *conversation.Session) error {
			session.Metadata, session.Instructions, session.Model = wanted.Metadata, wanted.Instructions, wanted.Model
			session.InstructionTokens = wanted.InstructionTokens
			session.Context.MaxTokens, session.Context.RetentionPolicy = maxTokens, policy
			if refused {
				return &conversation.SettingsError{Field: "metadata", Reason: "is refused"}
			}
			return nil
		})
	})
}

func (p *pair) session(r *rapid.T) {
	id := p.aSession(r)
	p.both(r, "Session", func(s *side) (any, error) { return s.store.Session(p.t.Context(), p.owner, id(s)) })
}

func (p *pair) list(r *rapid.T) {
	before, limit := p.aSession(r), rapid.IntRange(1, 4).Draw(r, "limit")
	from, user := rapid.Bool().Draw(r, "from"), rapid.SampledFrom([]string{"", "user_0000000000000000", "user_0000000000000009"}).Draw(r, "of user")
	p.both(r, "Sessions", func(s *side) (any, error) {
		query := conversation.SessionQuery{UserID: user, Limit: limit}
		// Before is not set to a deleted session, because the start of the page would then depend on the clock.
		if _, err := s.store.Session(p.t.Context(), p.owner, before(s)); from && err == nil {
			query.Before = before(s)
		}
		return s.store.Sessions(p.t.Context(), p.owner, query)
	})
}

func (p *pair) delete(r *rapid.T) {
	if rapid.IntRange(0, 2).Draw(r, "really") > 0 {
		return
	}
	id := p.aSession(r)
	p.both(r, "DeleteSession", func(s *side) (any, error) { return s.store.DeleteSession(p.t.Context(), p.owner, id(s)) })
}

func (p *pair) messages(r *rapid.T) {
	id := p.aSession(r)
	query := conversation.MessageQuery{
		Inclusive: rapid.Bool().Draw(r, "inclusive"), Ascending: rapid.Bool().Draw(r, "ascending"), Limit: rapid.IntRange(1, 9).Draw(r, "limit"),
	}
	from := p.place(r, id)
	p.both(r, "Messages", func(s *side) (any, error) {
		query := query
		query.From = from(s)
		return s.store.Messages(p.t.Context(), p.owner, id(s), query)
	})
}

// place draws the message id at which a page begins: an empty id, the lowest or the highest id, or an id of the session. It draws
// no id of another session, because the order of such ids depends on the clock.
func (p *pair) place(r *rapid.T, sessionID func(*side) string) func(s *side) string {
	places := []func(*side) string{
		func(*side) string { return "" }, func(*side) string { return "msg_0000000000000000" }, func(*side) string { return "msg_zzzzzzzzzzzzzzzz" },
	}
	for i, key := range p.stores[0].keys {
		if key.SessionID == sessionID(p.stores[0]) {
			places = append(places, func(s *side) string { return s.keys[i].ReplyID }, func(s *side) string { return s.asked[i] })
		}
	}
	return places[rapid.IntRange(0, len(places)-1).Draw(r, "from")]
}

func (p *pair) message(r *rapid.T) {
	id, message := p.aSession(r), p.id(r, conversation.MessagePrefix)
	p.both(r, "Message", func(s *side) (any, error) { return s.store.Message(p.t.Context(), p.owner, id(s), message(s)) })
}

func (p *pair) waiter() string {
	p.waiters++
	return fmt.Sprint("waiter ", p.waiters)
}

// queued has the only field of conversation.Queued that the test can compare.
type queued struct{ Live string }

func queuedOf(q *conversation.Queued) *queued {
	if q == nil {
		return nil
	}
	return &queued{q.Live}
}

func (p *pair) clear(r *rapid.T) {
	id, waiter := p.aSession(r), p.waiter()
	p.both(r, "ClearMessages", func(s *side) (any, error) {
		cleared, err := s.store.ClearMessages(p.t.Context(), p.owner, id(s), waiter)
		if err == nil && cleared.Queued != nil { // leave the queue, because this waiter would never take the session
			err = s.store.LeaveQueue(p.t.Context(), p.owner, id(s), waiter)
		}
		return []any{cleared.Count, cleared.Session, queuedOf(cleared.Queued)}, err
	})
}

func (p *pair) begin(r *rapid.T) {
	turn := conversation.NewTurn{
		Role: rapid.SampledFrom([]conversation.Role{conversation.User, conversation.System}).Draw(r, "role"), Content: "content",
		Tokens: rapid.SampledFrom([]int{0, 1, 10, 30, 50, 5000}).Draw(r, "tokens"), Waiter: p.waiter(), Idempotency: request(r),
		OnBusy: rapid.SampledFrom([]conversation.OnBusy{conversation.Enqueue, conversation.Reject, conversation.Interrupt}).Draw(r, "busy"),
	}
	if rapid.Bool().Draw(r, "metadata") {
		turn.Metadata = json.RawMessage(`{"priority":"high"}`)
	}
	p.try(r, turn, p.aSession(r))
}

// try begins a turn on both stores. If the turn is queued, try adds it to p.turns, with the session's name instead of its id.
func (p *pair) try(r *rapid.T, turn conversation.NewTurn, sessionID func(s *side) string) {
	turn.SessionID = p.stores[0].names[sessionID(p.stores[0])]
	waits := false
	p.both(r, fmt.Sprintf("BeginTurn of %+v", turn), func(s *side) (any, error) {
		asked := turn
		asked.SessionID = sessionID(s)
		b, err := s.store.BeginTurn(p.t.Context(), p.owner, asked)
		waits = b.Queued != nil
		if b.Key.ReplyID != "" {
			s.keys, s.asked = append(s.keys, b.Key), append(s.asked, b.Message.ID)
		}
		return []any{queuedOf(b.Queued), b.Replayed, b.Session, b.Message, b.Reply, b.Previous, b.History, b.Index, b.Key.Fence}, err
	})
	if waits {
		p.turns = append(p.turns, turn)
	}
}

// queuedTurn draws a turn from the last eight turns that were queued. It returns the turn, and a function for the id of the
// turn's session, because this id differs between the stores. ok is false if no turn was queued.
func (p *pair) queuedTurn(r *rapid.T) (turn conversation.NewTurn, sessionID func(s *side) string, ok bool) {
	if len(p.turns) == 0 {
		return turn, nil, false
	}
	turn = p.turns[rapid.IntRange(max(0, len(p.turns)-8), len(p.turns)-1).Draw(r, "turn")]
	return turn, func(s *side) string {
		var n int
		_, _ = fmt.Sscanf(turn.SessionID, "#%d", &n)
		return s.ids[n]
	}, true
}

func (p *pair) retry(r *rapid.T) {
	if turn, sessionID, ok := p.queuedTurn(r); ok {
		for _, s := range p.stores {
			// If the turn is live already, Redis returns the turn again, and the embedded store does not. So the test skips
			// sessions with a live reply.
			for _, key := range s.keys {
				if key.SessionID == sessionID(s) {
					if session, err := s.store.Session(p.t.Context(), p.owner, key.SessionID); err == nil && session.LiveReply != "" {
						return
					}
				}
			}
		}
		p.try(r, turn, sessionID)
	}
}

func (p *pair) leave(r *rapid.T) {
	if turn, sessionID, ok := p.queuedTurn(r); ok {
		p.both(r, "LeaveQueue", func(s *side) (any, error) {
			return nil, s.store.LeaveQueue(p.t.Context(), p.owner, sessionID(s), turn.Waiter)
		})
	}
}

func (p *pair) endLive(r *rapid.T) { p.endOne(r, max(0, len(p.stores[0].keys)-3), 0) }

func (p *pair) end(r *rapid.T) { p.endOne(r, 0, rapid.Int64Range(-1, 1).Draw(r, "fence")) }

// endOne ends a random turn of keys[first:]. It adds fence to the turn's fencing token: 0 keeps the token, any other number makes
// it wrong.
func (p *pair) endOne(r *rapid.T, first int, fence int64) {
	if len(p.stores[0].keys) == 0 {
		return
	}
	n := rapid.IntRange(first, len(p.stores[0].keys)-1).Draw(r, "turn")
	reply := conversation.Message{
		Content: rapid.SampledFrom([]string{"", "an answer"}).Draw(r, "content"), Tokens: rapid.IntRange(0, 40).Draw(r, "tokens"),
		Status: rapid.SampledFrom([]stream.State{stream.Completed, stream.Cancelled, stream.Failed, stream.Interrupted}).Draw(r, "status"),
	}
	if rapid.Bool().Draw(r, "usage") {
		reply.Usage = &conversation.Usage{Prompt: 7, Completion: reply.Tokens, Total: 7 + reply.Tokens}
	}
	p.both(r, "EndTurn", func(s *side) (any, error) {
		key := s.keys[n]
		key.Fence += fence
		return s.store.EndTurn(p.t.Context(), key, reply, conversation.Timing{Duration: 5e6})
	})
}

func (p *pair) journal(r *rapid.T) {
	if len(p.stores[0].keys) == 0 {
		return
	}
	n := rapid.IntRange(max(0, len(p.stores[0].keys)-3), len(p.stores[0].keys)-1).Draw(r, "turn")
	p.both(r, "Journal", func(s *side) (any, error) {
		return nil, s.store.Journal(p.t.Context(), []stream.Segment[conversation.TurnKey]{{Key: s.keys[n], Text: []byte("some té")}})
	})
}

// vectors sets vectors for random messages. A message may have been removed or belong to another session.
func (p *pair) vectors(r *rapid.T) {
	sessionID := p.aSession(r)
	var replies []func(*side) string
	var vectors []window.Vector
	for range rapid.IntRange(0, 3).Draw(r, "vectors") {
		v, err := window.VectorOf("m", []float32{1, float32(rapid.IntRange(0, 9).Draw(r, "vector"))})
		if err != nil {
			r.Fatal(err)
		}
		replies, vectors = append(replies, p.id(r, conversation.MessagePrefix)), append(vectors, v)
	}
	p.both(r, "SetVectors", func(s *side) (any, error) {
		all := make([]conversation.ExchangeVector, len(replies))
		for i := range all {
			all[i] = conversation.ExchangeVector{Reply: replies[i](s), Vector: vectors[i]}
		}
		return nil, s.store.SetVectors(p.t.Context(), p.owner, sessionID(s), all)
	})
}

func (p *pair) context(r *rapid.T) {
	id, tokens := p.aSession(r), rapid.SampledFrom([]int{0, 50, 5000}).Draw(r, "tokens")
	p.both(r, "Context", func(s *side) (any, error) { return s.store.Context(p.t.Context(), p.owner, id(s), tokens) })
}

func (p *pair) usage(r *rapid.T) {
	p.both(r, "Usage", func(s *side) (any, error) {
		used, err := s.store.Usage(p.t.Context(), p.owner, 0, 1<<40)
		var sum usage.Bucket
		for i := range used.Hours {
			sum.Add(&used.Hours[i].Bucket)
		}
		sum.SessionTime = 0
		counts := make(map[int]int64)
		for field, n := range sum.All() {
			counts[int(field)] = n
		}
		return []any{used.Active, used.StoredBytes, counts}, err
	})
}
