package redis

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"parley/conversation"
	"parley/store/redis/redistest"
)

// holdText is a hook of the go-redis client. It counts commands with the text of a script. It sends the first of them only after
// the server has refused the given number of digests.
type holdText struct {
	texts   atomic.Int64
	refused sync.WaitGroup
}

func (h *holdText) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (h *holdText) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			h.texts.Add(1)
			h.refused.Wait()
		}
		err := next(ctx, cmd)
		if isUnknown(err) {
			h.refused.Done()
		}
		return err
	}
}

func (h *holdText) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		for _, cmd := range commands {
			if cmd.Name() == "eval" {
				h.texts.Add(1)
			}
		}
		return next(ctx, commands)
	}
}

func TestRun_ManyCallersOfUnknownScript_TextSentOnce(t *testing.T) {
	server := redistest.Single(t)
	s, owner := open(t, server.URL), newOwner()
	session := newSession(t, s, owner)
	server.Do("SCRIPT", "FLUSH")
	h := new(holdText)
	s.db.AddHook(h)
	const callers = 16
	h.refused.Add(callers)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			got, err := s.Session(t.Context(), owner, session.ID)
			if err != nil || got.ID != session.ID {
				t.Errorf("Session: %+v, %v", got, err)
			}
		})
	}
	work.Wait()
	same(t, "texts that the callers have sent", h.texts.Load(), 1)
	followed := make([]conversation.Followed, callers)
	for i := range followed {
		followed[i] = conversation.Followed{Owner: owner, SessionID: session.ID}
	}
	for _, update := range poll(t, s, followed...) {
		same(t, "the polled session", update.Session.ID, session.ID)
	}
	same(t, "texts after a pipeline of an unknown script", h.texts.Load(), 2)
}

// Callers may learn that a script is unknown while the text of another script is sent.
func TestSentTexts_OtherScriptSent_OneCallerStillSends(t *testing.T) {
	t.Parallel()
	var texts sentTexts
	unknown := texts.count(getSessionScript)
	done, mine := texts.claim(heartbeatScript, texts.count(heartbeatScript))
	same(t, "the first caller of the other script sends", mine, true)
	texts.release(heartbeatScript, done)
	done, mine = texts.claim(getSessionScript, unknown)
	same(t, "the first caller sends", mine, true)
	_, mine = texts.claim(getSessionScript, unknown)
	same(t, "the second caller sends", mine, false)
	texts.release(getSessionScript, done)
	_, mine = texts.claim(getSessionScript, unknown)
	same(t, "a caller sends after the text was sent", mine, false)
}
