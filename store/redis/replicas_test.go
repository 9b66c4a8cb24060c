package redis

import (
	"net"
	"strings"
	"testing"

	"parley/auth"
	"parley/auth/limit"
	"parley/conversation"
	"parley/store/redis/redistest"
)

// replicated starts a master, and a replica that connects to the master through the proxy link.
func replicated(t *testing.T) (master, replica *redistest.Server, link *redistest.Proxy) {
	master = redistest.Single(t, "--repl-diskless-sync-delay", "0")
	link = redistest.NewProxy(t, master.Addr)
	host, port, err := net.SplitHostPort(link.Addr)
	must(t, err)
	replica = redistest.Single(t, "--replicaof", host+" "+port)
	replica.AwaitMaster()
	return master, replica, link
}

func TestReplicas_EndAndBeginTurn_NoExtraRoundTrip(t *testing.T) {
	t.Parallel()
	master, replica, _ := replicated(t)
	s := open(t, master.URL+"?waitReplicas=1")
	owner := conversation.Owner{Account: newAccount(), Mode: conversation.Live}
	p := newKey(t, s, auth.Owner{Account: owner.Account, Mode: auth.Live})
	session := newSession(t, s, owner)
	begun, err := s.BeginTurn(t.Context(), owner, aTurn(session.ID, "so that the server knows the script"))
	must(t, err)
	must(t, s.db.ScriptLoad(t.Context(), endTurnScript.compiled().text).Err())
	var counted trips
	s.db.AddHook(&counted)
	_, err = s.EndTurn(t.Context(), begun.Key, anAnswer, conversation.Timing{})
	must(t, err)
	a := &auth.Admission{Principal: p, Limits: limit.TierLimits{RequestsPerMinute: 300, TokensPerMinute: 100_000}}
	begun, err = s.BeginTurn(auth.WithAdmission(t.Context(), a), owner, aTurn(session.ID, "hello"))
	must(t, err)
	if n := counted.n.Load(); n != 2 {
		t.Errorf("EndTurn and BeginTurn took %d round trips, want 2", n)
	}
	if got := replica.Do("HGET", sessionKey(tagOfOwner(owner), session.ID), "live"); got != begun.Reply.ID {
		t.Errorf("the live reply on the replica is %q, want %q", got, begun.Reply.ID)
	}
}

func TestReplicas_TooFew_WritesUnavailable(t *testing.T) {
	t.Parallel()
	master, _, link := replicated(t)
	s := open(t, master.URL+"?waitReplicas=1")
	owner := conversation.Owner{Account: newAccount(), Mode: conversation.Live}
	create := func() error {
		_, err := s.CreateSession(t.Context(), owner, conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
		return err
	}
	wantWithin(t, "CreateSession", create)
	page, err := s.Sessions(t.Context(), owner, conversation.SessionQuery{Limit: 9}) // reads need no replica
	must(t, err)
	before := len(page.Sessions)
	link.Cut()
	for range 3 {
		wantError(t, "CreateSession without the replica", create(), conversation.ErrUnavailable)
	}
	wantError(t, "Ping", s.Ping(t.Context()), conversation.ErrUnavailable)
	page, err = s.Sessions(t.Context(), owner, conversation.SessionQuery{Limit: 9})
	must(t, err)
	if n := len(page.Sessions) - before; n != 1 { // the first call without the replica took effect, the next two did not start
		t.Errorf("CreateSession without the replica created %d sessions, want 1", n)
	}
	link.Connect()
	master.AwaitReplica()
	wantWithin(t, "Ping with the replica", func() error { return s.Ping(t.Context()) })
	wantWithin(t, "CreateSession with the replica", create)
}

// TestReplicas_RepeatWritesNothing_StillUnavailable suspends the replica, which stays connected. The second CreateSession finds
// the session of the first call and writes nothing. It must fail too, because the replica does not have the session yet. WAIT
// alone would succeed on a connection that has written nothing.
func TestReplicas_RepeatWritesNothing_StillUnavailable(t *testing.T) {
	t.Parallel()
	master, replica, _ := replicated(t)
	url := master.URL + "?waitReplicas=1"
	owner := conversation.Owner{Account: newAccount(), Mode: conversation.Live}
	wanted := conversation.NewSession{
		UserID: aUser, Context: conversation.DefaultContextConfig, Idempotency: &conversation.Idempotency{Key: "one"},
	}
	replica.Stop()
	for range 2 {
		_, err := open(t, url).CreateSession(t.Context(), owner, wanted)
		wantError(t, "CreateSession while the replica is suspended", err, conversation.ErrUnavailable)
	}
	replica.Cont()
	master.AwaitReplica()
	var made conversation.SessionCreated
	wantWithin(t, "CreateSession with the replica", func() (err error) {
		made, err = open(t, url).CreateSession(t.Context(), owner, wanted)
		return err
	})
	if !made.Replayed {
		t.Error("the session was created twice")
	}
}

func TestOpen_InvalidWaitReplicas_Refused(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h?waitReplicas=x":           "waitReplicas in the store's URL must be a whole number",
		"redis://h?waitReplicas=-1":          "waitReplicas in the store's URL must be a whole number",
		"redis+cluster://h?waitReplicas=101": "waitReplicas in the store's URL must be a whole number",
		"redis+sentinel://h/m?waitreplica=1": "unknown parameter",
	} {
		if _, err := Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", url, err, want)
		}
	}
	o, err := parseURL("redis+sentinel://a/m?waitReplicas=2&sentinelPassword=x")
	if err != nil || o.waitReplicas != 2 {
		t.Errorf("a URL with waitReplicas=2: options %+v, error %v", o, err)
	}
}

// TestReplicas_Cluster_WaitsForShardOfAccount suspends the replica of one shard. Durable operations must fail for an account of
// this shard, and succeed for an account of another shard. After a planned change of the master, both must succeed.
func TestReplicas_Cluster_WaitsForShardOfAccount(t *testing.T) {
	t.Parallel()
	c := redistest.ClusterWithReplicas(t)
	s := open(t, c.URL+"?waitReplicas=1")
	var owners [2]conversation.Owner // on the shards 0 and 1
	for i := range owners {
		for owners[i].Account == "" || c.ShardOf(tagOfOwner(owners[i])) != i {
			owners[i] = conversation.Owner{Account: newAccount(), Mode: conversation.Live}
		}
	}
	create := func(i int) error {
		_, err := s.CreateSession(t.Context(), owners[i], conversation.NewSession{UserID: aUser, Context: conversation.DefaultContextConfig})
		return err
	}
	sessions := func(i int) int {
		page, err := s.Sessions(t.Context(), owners[i], conversation.SessionQuery{Limit: 9}) // reads need no replica
		must(t, err)
		return len(page.Sessions)
	}
	other := func() error { return create(1) }
	wantWithin(t, "shard 0", func() error { return create(0) })
	before := sessions(0)
	c.Replicas[0].Stop()
	for range 3 {
		wantError(t, "CreateSession without the replica", create(0), conversation.ErrUnavailable)
		wantWithin(t, "the other shard", other)
	}
	if n := sessions(0) - before; n != 1 { // the first call without the replica took effect, the next two did not start
		t.Errorf("CreateSession without the replica created %d sessions, want 1", n)
	}
	c.Replicas[0].Cont()
	c.AwaitHealth()
	c.Masters[0].AwaitReplica()
	wantWithin(t, "shard 0 with the replica", func() error { return create(0) })
	c.Replicas[0].Do("CLUSTER", "FAILOVER")
	c.Replicas[0].AwaitRole("master")
	wantWithin(t, "CLUSTER FAILOVER", func() error { return create(0) })
	wantWithin(t, "the other shard", other)
}
