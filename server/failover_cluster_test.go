package server_test

import (
	"net/http"
	"testing"
	"time"

	"parley/store/redis/redistest"
)

// clusterEndTimeout is the longest time from the promotion of a replica to the end of a reply: 5 s as the guide promises, and
// 25 s for a busy machine. A node that does not follow the Cluster's topology would need up to 60 s.
const clusterEndTimeout = 30 * time.Second

// TestFailover_ClusterMasterKilled_LiveReplyEndsOnce kills the master of the account while a reply is live. The model ends the
// reply while no master serves the account. Viewers on both nodes must get one end of the reply, with all text.
func TestFailover_ClusterMasterKilled_LiveReplyEndsOnce(t *testing.T) {
	t.Parallel()
	cluster, model := redistest.ClusterWithReplicas(t), newDirected()
	a, b := startOn(t, cluster.URL+redistest.Patient, model), startOn(t, cluster.URL+redistest.Patient, model)
	session := a.session()
	here, there := a.dial(), b.dial()
	here.mustSubscribe(session, "")
	there.mustSubscribe(session, "")
	a.later("POST", messages(session), content("hello"), "Idempotency-Key", "one")
	c := model.next(t)
	c.say("Half of it")
	there.next("message.created")
	there.deltas(t, len("Half of it"))
	shard := cluster.ShardOf("{a:default:l}")
	cluster.Masters[shard].AwaitReplica() // otherwise the failover may lose the session
	cluster.Masters[shard].Kill()
	c.say(", and the rest")
	c.end()
	cluster.AwaitPromotion(shard)
	promoted := time.Now()
	for name, s := range map[string]*socket{"a": here, "b": there} {
		if f := s.until("message.completed"); f.Message.Content != "Half of it, and the rest" {
			t.Errorf("the viewer on node %s was shown %s", name, f.raw)
		}
		s.must(map[string]any{"type": "ping", "id": "p"})
		s.next("pong") // no second end came before the pong
	}
	if took := time.Since(promoted); took > clusterEndTimeout {
		t.Errorf("the reply ended %v after the promotion", took)
	} else {
		t.Logf("the reply ended %v after the promotion", took)
	}
	again := b.later("POST", messages(session), content("hello"), "Idempotency-Key", "one")
	if got := within(t, "the repeat's response", again); got.status != http.StatusOK {
		t.Errorf("the repeat got %d %s", got.status, got.raw)
	}
}

// TestFailover_ClusterWaitReplicas_NothingLost cuts the link between the account's master and its replica, under load, and then
// kills the master. Without waitReplicas, the replies between the cut and the kill would be lost.
func TestFailover_ClusterWaitReplicas_NothingLost(t *testing.T) {
	t.Parallel()
	cluster := redistest.ClusterWithReplicas(t)
	shard := cluster.ShardOf("{a:default:l}")
	l := newLoad(t, cluster.URL+"?waitReplicas=1", 4)
	l.start()
	l.awaitReplies(20)
	cutReplication(cluster.Masters[shard])
	again := l.retries.Load()
	l.nodes[0].poll("503 responses", func() bool { return l.retries.Load() > again+8 })
	cluster.Masters[shard].Kill()
	cluster.AwaitPromotion(shard)
	cluster.Masters[shard].Restart() // as the replica that the writes wait for
	l.awaitReplies(20)
	if lost := l.end(); lost > 0 {
		t.Errorf("%d replies that clients got are lost", lost)
	}
}
