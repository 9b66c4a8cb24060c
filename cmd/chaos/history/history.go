package history

import "time"

// grace is the time for which events of a removed session may still be on their way to a viewer. A viewer that polls Redis
// notices a removal within 6 s.
const grace = 10 * time.Second

// History is everything that the clients of one run saw, what the model sent, and what the store had at the end.
type History struct {
	// Lossy means that the surroundings may lose confirmed writes, for example a Redis that is emptied. Then a message may be
	// missing, and an ending may change. The other promises hold.
	Lossy bool
	// Halted means that the store accepts no more writes, so the last replies may have no ending.
	Halted bool
	// Allowed lists error codes that are expected besides those of every run.
	Allowed []string

	Sends    []Send
	Views    []View
	Reads    []Read
	Requests []Request
	Removals []Removal
	Stored   []Session         // read through the API after the faults
	Model    map[string]Answer // what the model sent, by the content of the message
	Crashes  []string          // the last output of each server that ended by itself
}

// Message is a message in a response, in an event or in the history of a session.
type Message struct {
	ID, Role, Status, Content, FinishReason string
	Usage                                   int // total tokens of a reply that has ended
}

// ended reports whether the message is a reply in a final state.
func (m Message) ended() bool { return m.Role == "assistant" && m.Status != "streaming" }

// Send is a message that a client sent. A client repeats an unconfirmed send with the same Idempotency-Key; all these requests
// are one Send.
type Send struct {
	Session, Content string
	Begun            time.Time
	Confirmed        time.Time // zero if no response confirmed the send
	Reply            string    // the id of the reply; "" if the send was not confirmed
	Whole            *Message  // the reply in the response; nil for a streaming send
}

// View is what one viewer got of one reply.
type View struct {
	Viewer, Session, Reply string
	Late                   bool // the viewer may have begun in the middle of the reply
	Pieces                 []Piece
	Ends                   []Message // the terminal events that the viewer got
}

// Piece is a delta that a viewer got.
type Piece struct {
	Offset int
	Text   string
	At     time.Time
}

// Read is a response to a request for messages of a session.
type Read struct {
	Session  string
	Begun    time.Time // when the client sent the request
	Messages []Message
}

// Request is one request and its result. Status is 0 if no response arrived, because the connection broke.
type Request struct {
	What           string // for example "POST /v1/sessions"
	Begun          time.Time
	Took, Deadline time.Duration
	Status         int
	Code           string // the error code; "" after a success
	RetryAfter     bool   // the response says when to repeat the request
	Expected       bool   // the client expected this error, for example a 404 after a deletion
}

// Removal is a confirmed deletion of a session, or its expiry. After the time At, no request may get its text.
type Removal struct {
	Session string
	At      time.Time
}

// Session is a session in the store, after the faults.
type Session struct {
	ID           string
	MessageCount int
	Usage        int       // tokenUsage.total
	Messages     []Message // oldest first
}

// Answer is what the model sent for a message.
type Answer struct {
	Text  string
	Whole bool // the model sent its regular end after the text
	Usage int  // the usage that the model reported with the end
}

// Violation is a broken promise.
type Violation struct {
	Promise Promise
	About   string
}

// Promise is a promise that Check checks.
type Promise string

// The promises.
const (
	Stored     Promise = "a confirmed message is stored"
	Once       Promise = "a message is stored once"
	Order      Promise = "messages are stored in the order of their confirmation"
	Unaltered  Promise = "no text is altered"
	Untorn     Promise = "each viewer gets each byte once"
	OneEnding  Promise = "a reply ends once"
	UsageOnce  Promise = "usage is counted once"
	Gone       Promise = "removed text is not served"
	Answered   Promise = "each request is answered in time"
	Documented Promise = "errors are documented"
	Running    Promise = "the server does not crash"
)
