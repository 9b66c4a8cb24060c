package turn_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/stream"
)

// heapInUse returns the number of bytes of the live objects on the heap.
func heapInUse() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the first call may leave objects of pools
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// TestTurns_LargeReplies_InMemoryOnce runs turns with large replies on the embedded store, with a viewer each. While the replies
// are live, and after their end, the whole process may take at most 1.5 bytes of memory for each byte of text.
func TestTurns_LargeReplies_InMemoryOnce(t *testing.T) {
	const replies, size, most = 8, 1 << 20, 1.5
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	check := func(when string, before int) {
		t.Helper()
		measure := func() float64 { return float64(heapInUse()-before) / (replies * size) }
		each := measure()
		for began := time.Now(); each > most && time.Since(began) < time.Minute; each = measure() {
			time.Sleep(10 * time.Millisecond) // a call of the store that has just ended may still hold its buffers
		}
		t.Logf("%s: %.2f bytes of memory for each byte of text", when, each)
		if each > most {
			t.Errorf("%s: %.2f bytes of memory for each byte of text, want at most %.2f", when, each, most)
		}
	}
	var calls []*conversationtest.Call
	var sent []<-chan conversationtest.Reply
	var viewers []*conversationtest.Viewer
	for range replies {
		session := n.NewSession(conversation.ContextConfig{MaxTokens: 16384, CompressionEnabled: true, RetentionPolicy: conversation.FIFO})
		viewers = append(viewers, n.Watch(session, nil))
		sent = append(sent, n.Later(conversationtest.Message(session, "hello")))
		calls = append(calls, model.Next(t))
	}
	before := heapInUse()
	text := strings.Repeat("some words ", size/11)
	for _, c := range calls {
		for rest := text; rest != ""; rest = rest[min(len(rest), 1100):] {
			c.Write(rest[:min(len(rest), 1100)])
		}
	}
	for _, v := range viewers {
		for size := 0; size < len(text); {
			size += len(v.Event().Delta)
		}
		awaitJournalled(t, n, v.Topic().Name(), len(text))
	}
	check("live", before)
	var ended []conversationtest.Reply // keeps the messages in memory
	for i, c := range calls {
		c.End()
		ended = append(ended, conversationtest.Within(t, "the reply", sent[i]))
		viewers[i].Until(stream.Ended)
		if ended[i].Content != text {
			t.Fatalf("the reply has %d bytes, %v", len(ended[i].Content), ended[i].Err)
		}
	}
	check("ended", before)
	runtime.KeepAlive(ended)
}

// awaitJournalled waits until the store has size bytes of a session's live reply.
func awaitJournalled(t *testing.T, n *conversationtest.Node, session string, size int) {
	for {
		m, err := n.Store.Message(t.Context(), owner, session, n.Get(session).LiveReply)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Content) == size {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
