package redis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// sentTexts limits how often this process sends the text of a script, which has up to 26 KB. After a start, a fail-over or a
// SCRIPT FLUSH, a server knows no script, and many callers learn this at the same time. One of them sends the text, and the
// others wait and send the digest again.
//
// In a Cluster, each caller sends the text, because another caller may wait for another master.
type sentTexts struct {
	mu      sync.Mutex
	sent    map[*script]int           // guarded by mu; how often the text of each script was sent
	sending map[*script]chan struct{} // guarded by mu; closed after the text was sent
}

// count returns how often the text of a script was sent.
func (t *sentTexts) count(sc *script) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent[sc]
}

// sendText runs a script after a server has refused its digest. The function send sends the text or, once more, the digest.
// before is the result of count from before the caller sent the digest.
func (t *sentTexts) sendText(ctx context.Context, sc *script, before int, send func(byText bool) (any, error)) (any, error) {
	done, mine := t.claim(sc, before)
	if mine {
		defer t.release(sc, done)
		return send(true)
	}
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	reply, err := send(false)
	if isUnknown(err) { // the other caller has failed
		return send(true)
	}
	return reply, err
}

// claim reports whether the caller must send the text. If not, done is closed when another caller has sent it; nil if that was
// before.
func (t *sentTexts) claim(sc *script, before int) (done chan struct{}, mine bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if done := t.sending[sc]; done != nil || t.sent[sc] != before {
		return done, false
	}
	if t.sending == nil {
		t.sent, t.sending = make(map[*script]int), make(map[*script]chan struct{})
	}
	t.sending[sc] = make(chan struct{})
	return t.sending[sc], true
}

func (t *sentTexts) release(sc *script, done chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent[sc]++
	delete(t.sending, sc)
	close(done)
}

// isUnknown reports whether a server did not know a script. Without the comparison with nil, HasErrorPrefix would allocate.
func isUnknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }
