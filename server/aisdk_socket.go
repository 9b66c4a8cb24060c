package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"parley/auth"
	"parley/conversation"
	"parley/conversation/turn"
	"parley/stream"
	"parley/stream/wire"
)

// aiSDK is the dialect ai-sdk.v7, that of WebSocketChatTransport in npm's ai: each send or resume is answered with one reply
// from its beginning, as a view of its own. A socket's subscriptions are such requests here, by requestId.
//
// The client closes the socket, and fails all that runs on it, over any frame that it does not know: there is no
// greeting, no heartbeat in JSON, no farewell; an error ends its request alone.
type aiSDK struct {
	// owned by the writer
	frames []byte // those of one event

	// guarded by the socket's mu
	told map[string]string // by session, the reply whose end this client was shown last
}

// answers is a request that is being answered with a reply.
type answers struct {
	// static
	giveUp context.CancelFunc // gives up a send that waits for its session; nil for a resume

	// owned by the writer
	frames wire.AISDKFrameEncoder

	// guarded by the socket's mu
	reply    string // its id, static once it is there
	aborted  bool
	replaced bool // after its abort, by another resume of the chat
}

const (
	// keptFrames is how large a buffer for frames may be to be kept by a socket.
	keptFrames = 4 << 10
	// regret is how long an abort of a resume waits for another resume of the chat. The AI SDK says the same where its user stops a
	// reply and where it only asks for it anew; then both frames are sent at once, and the reply must go on.
	regret = 250 * time.Millisecond
	// maxTold is how many sessions a socket remembers the last end of.
	maxTold = maxSubscriptions
)

// sdkHandlers are the handlers of requests by type. What they return is answered with an error.
var sdkHandlers = map[string]func(d *aiSDK, k *socket, id string, f sdkFrame) error{
	"send": (*aiSDK).send, "resume": (*aiSDK).resume, "abort": (*aiSDK).abort,
}

func (*aiSDK) greet(*socket) {}

func (*aiSDK) leave(*socket) {}

func (d *aiSDK) handle(k *socket, frame []byte) bool {
	f, err := parseSDKFrame(frame)
	if err != nil {
		d.refuse(k, "", err)
		return false
	}
	id, err := f.requestID()
	if err != nil {
		d.refuse(k, "", err)
		return false
	}
	kind, err := f.text("type")
	if handle := sdkHandlers[kind]; handle != nil {
		err = handle(d, k, id, f)
	} else if err == nil {
		err = invalid("type", "must be send, resume or abort")
	}
	if err != nil {
		d.refuse(k, id, err)
		e, _ := describe(err)
		return e.code != "validation_error"
	}
	return true
}

// refuse answers a request with an error, of which the dialect has the text alone. What could not be read has the id "", which no
// request of the client's has.
func (*aiSDK) refuse(k *socket, id string, err error) {
	e, fault := describe(err)
	if fault {
		k.server.Log.Error("a frame failed", "requestId", k.requestID, "error", err)
	}
	text := e.message
	if e.status == http.StatusTooManyRequests {
		text += " Try again in " + strconv.FormatInt(seconds(e.retryAfter), 10) + " s."
	}
	k.answer(wire.AISDKControlFrame{Type: "error", RequestID: id, ErrorText: text})
}

// session checks that the socket may do with the chat of a frame what needs the scope. A chat's id is a session's.
func (*aiSDK) session(k *socket, f sdkFrame, scope auth.Scope) (string, error) {
	id, err := f.text("id")
	if err != nil {
		return "", err
	}
	return id, k.session(id, scope)
}

// add makes sub one of the socket's requests, with what is to be said first, if anything. It reports whether the socket still
// stands.
func (d *aiSDK) add(k *socket, sub *subscription, first []byte) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return false, nil
	case k.subscriptions[sub.key] != nil:
		return false, invalid("requestId", "is that of a request which is still being answered")
	case len(k.subscriptions) >= maxSubscriptions:
		return false, invalid("requestId", "is one too many: a connection has at most 1,000 requests at once")
	}
	k.subscriptions[sub.key] = sub
	if sub.viewer != nil {
		k.outbox = append(k.outbox, first)
		k.ready = append(k.ready, sub)
		k.kick()
	}
	return true, nil
}

// end ends a request with an answer, unless it has ended.
func (d *aiSDK) end(k *socket, sub *subscription, answer func()) {
	k.mu.Lock()
	over := sub.closed
	if !over {
		k.drop(sub.key)
	}
	k.mu.Unlock()
	if !over {
		answer()
	}
}

func (d *aiSDK) fail(k *socket, sub *subscription, err error) {
	d.end(k, sub, func() { d.refuse(k, sub.key, err) })
}

// send sends the last user message of the chat, and shows the reply. While it waits for its session, an abort and the end of
// the socket give it up.
func (d *aiSDK) send(k *socket, id string, f sdkFrame) error {
	session, err := d.session(k, f, auth.WriteMessages)
	if err != nil {
		return err
	}
	m, err := f.message(session)
	if err != nil {
		return err
	}
	ctx, giveUp := context.WithCancel(k.ctx)
	sub := &subscription{key: id, session: session, answers: &answers{giveUp: giveUp, frames: wire.NewAISDKFrameEncoder(id)}}
	if added, err := d.add(k, sub, nil); !added {
		giveUp()
		return err
	}
	// A send is a request, as it is over REST (design section 6).
	ctx = auth.WithAdmission(ctx, k.server.Limits.Admission(k.principal))
	k.whenBegun(k.server.Conversation.Begin(ctx, k.owner, m), func(result turn.Result) {
		giveUp()
		d.begun(k, sub, result.Sent, result.Err)
		if result.Sent != nil {
			result.Sent.Start()
		}
	})
	return nil
}

// begun has the reply of a send shown, or says why there is none. It does not block.
func (d *aiSDK) begun(k *socket, sub *subscription, x *turn.Sent, err error) {
	k.mu.Lock()
	aborted, closed := sub.answers.aborted, k.closed || sub.closed
	if err == nil {
		sub.answers.reply = x.Reply.ID
		if !closed {
			k.server.work.Add(1)
		}
	}
	k.mu.Unlock()
	switch {
	case closed:
	case err != nil && aborted: // it never had a turn
		d.end(k, sub, func() { k.answer(wire.AISDKControlFrame{Type: "end", RequestID: sub.key}) })
	case err != nil:
		d.fail(k, sub, err)
	default:
		go func() {
			defer k.server.work.Done()
			d.open(k, sub, x.Position)
			if aborted { // while it began
				d.cancel(k, sub)
			}
		}()
	}
}

// open begins to show a reply that a send was answered with.
func (d *aiSDK) open(k *socket, sub *subscription, from stream.Position) {
	ctx, cancel := deadline()
	defer cancel()
	viewer, _, recovered, err := k.server.Conversation.View(ctx, k.owner, sub.session, &from, func() { k.wake(sub) })
	if err != nil {
		d.fail(k, sub, err)
		return
	}
	if !recovered {
		viewer.Close()
		d.fail(k, sub, conversation.ErrMessageNotFound)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if sub.closed {
		viewer.Close()
		return
	}
	sub.viewer = viewer
	k.ready = append(k.ready, sub)
	k.kick()
}

// resume shows the reply of a chat that is being written, or the newest if the client was not shown its end: from its beginning,
// whatever was seen of it. One that fails takes nobody's place: what was aborted in its favour is cancelled after all.
func (d *aiSDK) resume(k *socket, id string, f sdkFrame) error {
	session, err := d.session(k, f, auth.ReadMessages)
	if err != nil {
		return err
	}
	replaced := d.replace(k, session)
	err = d.reopen(k, id, session)
	if err != nil {
		for _, sub := range replaced {
			d.stop(k, sub)
		}
	}
	return err
}

// reopen begins to show the reply of a session that a resume is for, if there is any.
func (d *aiSDK) reopen(k *socket, id, session string) error {
	ctx, cancel := deadline()
	defer cancel()
	reply, err := d.resumable(ctx, k, session)
	if err != nil {
		return err
	}
	sub := &subscription{key: id, session: session, answers: &answers{reply: reply, frames: wire.NewAISDKFrameEncoder(id)}}
	recovered := false
	if reply != "" {
		from := stream.Before(reply)
		sub.viewer, _, recovered, err = k.server.Conversation.View(ctx, k.owner, session, &from, func() { k.wake(sub) })
		if err != nil {
			return err
		}
	}
	if !recovered { // or it was cleared this moment
		if sub.viewer != nil {
			sub.viewer.Close()
		}
		k.answer(wire.AISDKControlFrame{Type: "no-active", RequestID: id})
		return nil
	}
	start, err := json.Marshal(wire.AISDKControlFrame{Type: "start", RequestID: id})
	if err != nil {
		panic(err) // our own struct
	}
	added, err := d.add(k, sub, start)
	if !added {
		sub.viewer.Close()
	}
	return err
}

// replace ends the resumes of a chat that were aborted just now, in favour of another: they cancel nothing. It returns them.
func (d *aiSDK) replace(k *socket, session string) (replaced []*subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, sub := range k.subscriptions {
		if sub.session == session && sub.answers.aborted && sub.answers.giveUp == nil {
			sub.answers.replaced = true
			k.drop(sub.key)
			replaced = append(replaced, sub)
		}
	}
	return replaced
}

// resumable returns the reply of a session that a resume shows, "" for none.
func (d *aiSDK) resumable(ctx context.Context, k *socket, id string) (string, error) {
	session, _, err := k.server.Conversation.Session(ctx, k.owner, id)
	if err != nil || session.LiveReply != "" {
		return session.LiveReply, err
	}
	k.mu.Lock()
	told := d.told[id]
	k.mu.Unlock()
	if session.Head <= session.Cleared || session.Head == told {
		return "", nil
	}
	newest, _, err := k.server.Conversation.Message(ctx, k.owner, id, session.Head)
	switch {
	case errors.Is(err, conversation.ErrMessageNotFound), err == nil && newest.Role != conversation.Assistant:
		return "", nil
	case err != nil:
		return "", err
	}
	return newest.ID, nil
}

// abort cancels the reply of a request, that of a resume unless another follows within regret, or gives up its send. One that
// has ended, or never was, is passed over: an abort may cross the reply's end.
func (d *aiSDK) abort(k *socket, id string, _ sdkFrame) error {
	k.mu.Lock()
	sub := k.subscriptions[id]
	if sub == nil || sub.answers.aborted {
		k.mu.Unlock()
		return nil
	}
	sub.answers.aborted = true
	reply := sub.answers.reply
	k.mu.Unlock()
	if err := k.session(sub.session, auth.WriteMessages); err != nil {
		d.fail(k, sub, err)
		return nil
	}
	if reply == "" {
		sub.answers.giveUp()
		return nil
	}
	if sub.answers.giveUp != nil {
		d.stop(k, sub)
		return nil
	}
	k.server.work.Add(1)
	go func() { // the client may leave meanwhile
		defer k.server.work.Done()
		time.Sleep(regret)
		k.mu.Lock()
		replaced := sub.answers.replaced
		k.mu.Unlock()
		if !replaced {
			d.stop(k, sub)
		}
	}()
	return nil
}

// stop has a request's reply cancelled, as one of a few of the socket's at once. It does not wait for that.
func (d *aiSDK) stop(k *socket, sub *subscription) {
	k.cancels <- struct{}{} // each place is free again within seconds
	k.server.work.Add(1)
	go func() {
		defer func() { <-k.cancels; k.server.work.Done() }()
		d.cancel(k, sub)
	}()
}

// cancel cancels a request's reply, also when the client leaves meanwhile. That it has ended, its viewer shows; the client has no
// ear for the request any more.
func (d *aiSDK) cancel(k *socket, sub *subscription) {
	ctx, done := deadline()
	defer done()
	if _, err := k.server.Conversation.Cancel(ctx, k.owner, sub.session, sub.answers.reply); err != nil {
		if _, fault := describe(err); fault {
			k.server.Log.Error("a frame failed", "requestId", k.requestID, "error", err)
		}
	}
}

func (d *aiSDK) show(k *socket, sub *subscription, event stream.Event) (last bool, err error) {
	a := sub.answers
	if event.Entry != nil && event.Entry.ID != a.reply { // the reply went without an ending
		d.fail(k, sub, conversation.ErrMessageNotFound)
		return true, nil
	}
	d.frames = a.frames.AppendFrames(d.frames[:0], event)
	last = isLast(event.Kind)
	if last { // before the client hears of it, which may ask for more at once
		d.conclude(k, sub, event)
	}
	for frame := range bytes.Lines(d.frames) {
		frame = frame[:len(frame)-1]
		if err := k.conn.Write(context.Background(), websocket.MessageText, frame); err != nil {
			return last, err
		}
	}
	if cap(d.frames) > keptFrames {
		d.frames = nil
	}
	return last, nil
}

// conclude ends a request whose reply has ended, or is gone, and keeps in mind what the client is about to be shown the end of.
func (d *aiSDK) conclude(k *socket, sub *subscription, event stream.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !sub.closed {
		k.drop(sub.key)
	}
	if event.Kind != stream.Ended {
		return
	}
	if d.told == nil {
		d.told = make(map[string]string)
	}
	if _, known := d.told[sub.session]; !known && len(d.told) >= maxTold {
		for other := range d.told { // it is replayed at worst
			delete(d.told, other)
			break
		}
	}
	d.told[sub.session] = sub.answers.reply
}
