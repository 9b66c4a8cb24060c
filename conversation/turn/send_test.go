package turn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/conversation"
	"parley/conversation/conversationtest"
	"parley/conversation/service"
	"parley/stream"
)

var owner = conversationtest.Owner

// notingQueue is a store that reports each send that is queued, and each waiter that leaves the queue.
type notingQueue struct {
	conversation.Store
	queued, left chan string // queued gets the contents of sends, left the names of waiters
}

func noteQueue() (*notingQueue, conversationtest.Option) {
	s := &notingQueue{queued: make(chan string, 1000), left: make(chan string, 1000)}
	return s, func(o *service.Options) { s.Store, o.Store = o.Store, s }
}

func (s *notingQueue) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	begun, err := s.Store.BeginTurn(ctx, o, turn)
	if begun.Queued != nil {
		s.queued <- turn.Content
	}
	return begun, err
}

func (s *notingQueue) LeaveQueue(ctx context.Context, o conversation.Owner, session, waiter string) error {
	err := s.Store.LeaveQueue(ctx, o, session, waiter)
	s.left <- waiter
	return err
}

// wantReply checks the status and the content of a reply, and that its error is nil.
func wantReply(t *testing.T, name string, r conversationtest.Reply, status stream.State, content string) {
	t.Helper()
	if r.Err != nil || r.Status != status || r.Content != content {
		t.Errorf("%s: %s %q %v, want %s %q", name, r.Status, r.Content, r.Err, status, content)
	}
}

func TestSend_Reply_InHistoryWithUsage(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	replied := n.Later(conversationtest.Message(session, "hello"))
	c := model.Next(t)
	if len(c.Request.Messages) != 1 || c.Request.Messages[0].Role != "user" || c.Request.Messages[0].Content != "hello" || c.Request.MaxTokens != 1024 {
		t.Errorf("the model was asked %+v", c.Request)
	}
	if s := n.Get(session); s.MessageCount != 2 || s.TokenUsage.Total != 0 || s.LiveReply == "" || !n.IsLive(session) || n.IsLive("other") || n.LiveReplies() != 1 {
		t.Errorf("when the turn has begun the session is %+v", s)
	}
	c.Write("Hi ")
	c.Write("there.")
	if live := n.All(session)[1]; live.Status != stream.Streaming || live.Content != "Hi there." {
		t.Errorf("during the reply the history has %+v", live)
	}
	c.Finish(stream.Result{FinishReason: "length", Usage: &stream.Usage{Prompt: 11, Completion: 7}}, nil)
	r := conversationtest.Within(t, "the reply", replied)
	wantReply(t, "the reply", r, stream.Completed, "Hi there.")
	if r.Role != conversation.Assistant || r.Tokens != conversationtest.Count("Hi there.") || r.FinishReason != "length" || *r.Usage != (conversation.Usage{Prompt: 11, Completion: 7, Total: 18}) {
		t.Errorf("the reply is %+v", r.Message)
	}
	if got := n.All(session)[1]; got.Content != r.Content || *got.Usage != *r.Usage || got.Status != r.Status {
		t.Errorf("history has %+v, the reply was %+v", got, r.Message)
	}
	if u := n.Get(session).TokenUsage; u != (conversation.TokenUsage{Total: 18, Prompt: 11, Completion: 7}) {
		t.Errorf("the session's usage is %+v", u)
	}
	n.Begun(session, "and now?")
	if c := model.Next(t); len(c.Request.Messages) != 3 || c.Request.Messages[1].Content != "Hi there." || c.Request.Messages[1].Role != "assistant" {
		t.Errorf("the second call of the model is %+v", c.Request.Messages)
	}
}

func TestSend_NoUsageFromProvider_Estimated(t *testing.T) {
	n := conversationtest.Start(t, conversationtest.Echo)
	session := n.NewSession()
	r := n.Ask(session, "12345678") // 2 tokens of text, 4 of message overhead, 3 of prompt overhead
	reply := conversationtest.Count("You said: 12345678")
	if *r.Usage != (conversation.Usage{Prompt: 9, Completion: reply, Total: 9 + reply, Estimated: true}) || r.Tokens != reply {
		t.Errorf("the reply's usage is %+v", r.Usage)
	}
	n.Ask(session, "1234")
	second := conversationtest.Count("You said: 1234")
	prompt := 9 + 3 + (2 + 4) + (reply + 4) + (1 + 4)
	want := conversation.TokenUsage{Prompt: prompt, Completion: reply + second, Total: prompt + reply + second}
	if s := n.Get(session); s.TokenUsage != want || s.MessageCount != 4 {
		t.Errorf("the session is %+v, want %+v", s, want)
	}
}

func TestSend_ModelFails_TextKept(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	for name, test := range map[string]struct {
		err  error
		text string
		code string
	}{
		"provider error":   {&stream.ModelError{Code: stream.CodeProviderError, Message: "the model broke off"}, "Half of", "provider_error"},
		"provider timeout": {&stream.ModelError{Code: stream.CodeProviderTimeout, Message: "too slow"}, "Half of", "provider_timeout"},
		"any error":        {errors.New("secret"), "Half of", "provider_error"},
		"before any text":  {errors.New("secret"), "", "provider_error"},
	} {
		t.Run(name, func(t *testing.T) {
			replied := n.Later(conversationtest.Message(session, "hello"))
			c := model.Next(t)
			if test.text != "" {
				c.Write(test.text)
			}
			c.Finish(stream.Result{}, test.err)
			r := conversationtest.Within(t, "the reply", replied)
			wantReply(t, "the reply", r, stream.Failed, test.text)
			if r.Error == nil || r.Error.Code != test.code || r.Error.Message == "secret" {
				t.Errorf("the error is %+v", r.Error)
			}
			if took := r.Usage.Prompt > 0; took != (test.text != "") {
				t.Errorf("the usage is %+v", r.Usage)
			}
		})
	}
	n.Begun(session, "again")
	if c := model.Next(t); len(c.Request.Messages) != 4 { // without the message that got no text
		t.Errorf("replies that failed were sent to the model: %+v", c.Request.Messages)
	}
}

func TestSend_ModelStalls_ProviderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		replied := n.Later(conversationtest.Message(session, "hello"))
		model.Next(t).Write("Half of")
		began := time.Now()
		r := <-replied
		if r.Error == nil || r.Error.Code != stream.CodeProviderTimeout || time.Since(began) != conversationtest.Silence {
			t.Errorf("after %v, the reply is %+v %v", time.Since(began), r.Message, r.Err)
		}
	})
}

func TestSend_TwentyQueued_RepliesInOrder(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	replies := make([]<-chan conversationtest.Reply, 20)
	for i := range replies {
		replies[i] = n.Later(conversationtest.Message(session, fmt.Sprint("message ", i)))
		if i > 0 {
			conversationtest.Within(t, "a place in the queue", queue.queued)
		} else {
			c := model.Next(t)
			model.Calls <- c
		}
	}
	for i, replied := range replies {
		c := model.Next(t)
		if len(c.Request.Messages) != 2*i+1 || len(model.Calls) > 0 {
			t.Errorf("turn %d began with %d messages, and %d more calls were open", i, len(c.Request.Messages), len(model.Calls))
		}
		c.Write("You said: " + conversationtest.Last(c.Request))
		c.End()
		wantReply(t, fmt.Sprint(i), conversationtest.Within(t, "a reply", replied), stream.Completed, fmt.Sprint("You said: message ", i))
	}
	history := n.All(session)
	if len(history) != 40 {
		t.Fatalf("the history has %d messages", len(history))
	}
	for i := range replies {
		if asked, reply := history[2*i], history[2*i+1]; asked.Content != fmt.Sprint("message ", i) || reply.Content != "You said: "+asked.Content {
			t.Errorf("turn %d is %q, %q", i, asked.Content, reply.Content)
		}
	}
}

func TestSend_ManyAtOnce_OneTurnAtATime(t *testing.T) {
	var running, most atomic.Int32
	model := conversationtest.ModelFunc(func(ctx context.Context, r stream.Request, write func([]byte)) (stream.Result, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		return conversationtest.Echo(ctx, r, write)
	})
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := n.SendAndWait(context.Background(), conversationtest.Message(session, fmt.Sprint(i)))
			wantReply(t, fmt.Sprint(i), r, stream.Completed, fmt.Sprint("You said: ", i))
		})
	}
	all.Wait()
	history := n.All(session)
	if most.Load() != 1 || len(history) != 40 {
		t.Errorf("%d turns ran at once, and the history has %d messages", most.Load(), len(history))
	}
	for i, m := range history {
		if want := []conversation.Role{conversation.User, conversation.Assistant}[i%2]; m.Role != want {
			t.Errorf("message %d is %+v", i, m)
		}
	}
}

func TestSend_BusySession(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	send := func(text string, how conversation.OnBusy) <-chan conversationtest.Reply {
		m := conversationtest.Message(session, text)
		m.OnBusy = how
		return n.Later(m)
	}
	first := send("first", conversation.Enqueue)
	c := model.Next(t)
	c.Write("Half of")
	t.Run("reject fails", func(t *testing.T) {
		conversationtest.Fails(t, "a send", (<-send("x", conversation.Reject)).Err, conversation.ErrSessionBusy)
	})
	t.Run("interrupt goes before waiters", func(t *testing.T) {
		waiting := send("waiting", conversation.Enqueue)
		conversationtest.Within(t, "a place in the queue", queue.queued)
		interrupting := send("interrupting", conversation.Interrupt)
		wantReply(t, "the interrupted", conversationtest.Within(t, "the interrupted reply", first), stream.Cancelled, "Half of")
		c := model.Next(t)
		if conversationtest.Last(c.Request) != "interrupting" || len(c.Request.Messages) != 3 {
			t.Errorf("the next call of the model is %+v", c.Request.Messages)
		}
		c.End()
		wantReply(t, "the interrupting", conversationtest.Within(t, "the interrupting reply", interrupting), stream.Completed, conversationtest.Done)
		model.Next(t).End()
		wantReply(t, "the waiting", conversationtest.Within(t, "the waiting reply", waiting), stream.Completed, conversationtest.Done)
	})
	t.Run("free session accepts all", func(t *testing.T) {
		for _, how := range []conversation.OnBusy{conversation.Reject, conversation.Interrupt, conversation.Enqueue} {
			replied := send("x", how)
			model.Next(t).End()
			wantReply(t, string(how), conversationtest.Within(t, "a reply", replied), stream.Completed, conversationtest.Done)
		}
	})
}

func TestSend_QueueFull_SessionBusy(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	n.Begun(session, "first")
	c := model.Next(t)
	var replies []<-chan conversationtest.Reply
	for i := range conversation.QueuePlaces {
		replies = append(replies, n.Later(conversationtest.Message(session, fmt.Sprint(i))))
		conversationtest.Within(t, "a place in the queue", queue.queued)
	}
	for _, how := range []conversation.OnBusy{conversation.Enqueue, conversation.Interrupt} {
		m := conversationtest.Message(session, "x")
		m.OnBusy = how
		conversationtest.Fails(t, string(how), n.SendAndWait(t.Context(), m).Err, conversation.ErrSessionBusy)
	}
	c.End()
	for i, replied := range replies {
		model.Next(t).End()
		wantReply(t, fmt.Sprint(i), conversationtest.Within(t, "a reply", replied), stream.Completed, conversationtest.Done)
	}
}

func TestSend_Queued30s_SessionBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		n.Begun(session, "first")
		c := model.Next(t)
		alive := time.AfterFunc(15*time.Second, func() { c.Write("") }) // so that the model does not stall
		defer alive.Stop()
		began := time.Now()
		r := n.SendAndWait(t.Context(), conversationtest.Message(session, "second"))
		if conversationtest.Fails(t, "the send", r.Err, conversation.ErrSessionBusy); time.Since(began) != 30*time.Second {
			t.Errorf("the send returned after %v", time.Since(began))
		}
		c.End()
		later := n.Later(conversationtest.Message(session, "third"))
		model.Next(t).End()
		if r := <-later; r.Err != nil || len(n.All(session)) != 4 {
			t.Errorf("the next send: %v", r.Err)
		}
	})
}

func TestSend_CallerLeavesQueue_NextWaiterGranted(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session := n.NewSession()
	n.Begun(session, "first")
	c := model.Next(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- n.SendAndWait(ctx, conversationtest.Message(session, "gone")).Err }()
	conversationtest.Within(t, "a place in the queue", queue.queued)
	third := n.Later(conversationtest.Message(session, "third"))
	conversationtest.Within(t, "a place in the queue", queue.queued)
	leave()
	conversationtest.Fails(t, "the caller", conversationtest.Within(t, "the caller's error", gone), context.Canceled)
	conversationtest.Within(t, "its place to be given up", queue.left)
	c.End()
	c = model.Next(t)
	if last := conversationtest.Last(c.Request); last != "third" {
		t.Fatalf("the model is asked %q", last)
	}
	c.End()
	if r := conversationtest.Within(t, "the third reply", third); r.Err != nil || len(n.All(session)) != 4 {
		t.Errorf("the third send returned %v", r.Err)
	}
}

func TestSend_CallerLeavesTurn_TurnCompletes(t *testing.T) {
	model := conversationtest.NewDirected()
	n := conversationtest.Start(t, model)
	session := n.NewSession()
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- n.SendAndWait(ctx, conversationtest.Message(session, "hello")).Err }()
	c := model.Next(t)
	c.Write("Half of ")
	leave()
	conversationtest.Fails(t, "the caller", conversationtest.Within(t, "the caller's error", gone), context.Canceled)
	c.Write("a reply.")
	if c.Ctx.Err() != nil {
		t.Fatal("the model's request ended with the caller")
	}
	v := n.Watch(session, &stream.Position{})
	c.End()
	if event, _ := v.Until(stream.Ended); event.Ending.State != stream.Completed {
		t.Errorf("the reply ended as %+v", event.Ending)
	}
}

// So a sender can acknowledge a send before viewers see the message.
func TestBegin_NotStarted_NotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := conversationtest.NewDirected()
		n := conversationtest.Start(t, model)
		session := n.NewSession()
		v := n.Watch(session, nil)
		results := n.Begin(t.Context(), conversationtest.Message(session, "hello"))
		if len(results) != 1 {
			t.Fatal("the session is free, but Begin returned without a result")
		}
		sent := (<-results).Sent
		fromHistory := n.Watch(session, &stream.Position{})
		synctest.Wait()
		for name, v := range map[string]*conversationtest.Viewer{"a viewer": v, "a viewer from history": fromHistory} {
			if event, ok := v.Poll(); ok {
				t.Errorf("%s was shown %+v before the turn was started", name, event)
			}
		}
		if len(model.Calls) > 0 {
			t.Error("the model was called before the turn was started")
		}
		sent.Start()
		sent.Start() // does nothing
		for _, v := range []*conversationtest.Viewer{v, fromHistory} {
			if m := conversationtest.Decode(t, v.Event().Entry.Created); m.Content != "hello" {
				t.Errorf("the first event created %+v", m)
			}
			if m := conversationtest.Decode(t, v.Event().Entry.Created); m.ID != sent.Reply.ID || m.Status != stream.Streaming {
				t.Errorf("the second event created %+v", m)
			}
		}
		model.Next(t).End()
	})
}

// A drain calls IsLive often: for each subscription of each socket, 20 times a second.
func TestIsLive_AllocatesNothing(t *testing.T) {
	n := conversationtest.Start(t, conversationtest.NewDirected())
	var session string
	for range 10 {
		session = n.NewSession()
		n.Begun(session, "hello")
	}
	if n.LiveReplies() != 10 || !n.IsLive(session) {
		t.Fatalf("%d replies are live", n.LiveReplies())
	}
	if allocs := testing.AllocsPerRun(100, func() { n.IsLive(session) }); allocs >= 1 {
		t.Errorf("IsLive allocates %v times", allocs)
	}
}

// panicking is a store. Its first BeginTurn panics.
type panicking struct {
	conversation.Store
	once sync.Once
}

func (s *panicking) BeginTurn(ctx context.Context, o conversation.Owner, turn conversation.NewTurn) (conversation.TurnStart, error) {
	s.once.Do(func() { panic("planted") })
	return s.Store.BeginTurn(ctx, o, turn)
}

// The caller recovers from the panic, as package server does. After that, no other send may wait forever for the send
// that panicked.
func TestSend_StorePanics_SessionUsable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := conversationtest.Start(t, conversationtest.Echo, func(o *service.Options) { o.Store = &panicking{Store: o.Store} })
		session := n.NewSession()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the store did not panic")
				}
			}()
			n.SendAndWait(t.Context(), conversationtest.Message(session, "hello"))
		}()
		n.StopReply(session, "msg_0000000000000000", stream.ErrCancelled) // waits while a turn is beginning
		wantReply(t, "the next send", n.SendAndWait(t.Context(), conversationtest.Message(session, "again")), stream.Completed, "You said: again")
		n.Drain(t.Context())
	})
}

func TestDrain_LiveAndQueued_RefusesQueuedInterruptsLive(t *testing.T) {
	model := conversationtest.NewDirected()
	queue, option := noteQueue()
	n := conversationtest.Start(t, model, option)
	session, unstarted := n.NewSession(), n.NewSession()
	replied := n.Later(conversationtest.Message(session, "hello"))
	c := model.Next(t)
	c.Write("A reply")
	forgotten := <-n.Begin(t.Context(), conversationtest.Message(unstarted, "nobody starts this"))
	waiting := n.Later(conversationtest.Message(session, "waiting"))
	conversationtest.Within(t, "a place in the queue", queue.queued)
	ctx, now := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() { defer close(drained); n.Drain(ctx) }()
	conversationtest.Fails(t, "a waiter", conversationtest.Within(t, "the waiter's error", waiting).Err, conversation.ErrDraining)
	<-n.Draining()
	conversationtest.Fails(t, "a send", n.SendAndWait(t.Context(), conversationtest.Message(session, "x")).Err, conversation.ErrDraining)
	c.Write(" goes on.")
	now()
	wantReply(t, "the live reply", conversationtest.Within(t, "the reply", replied), stream.Interrupted, "A reply goes on.")
	conversationtest.Within(t, "the drain", drained)
	if m, err := forgotten.Sent.Wait(t.Context()); err != nil || m.Status != stream.Interrupted {
		t.Errorf("the turn that was not started: %+v %v", m, err)
	}
}
