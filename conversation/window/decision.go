package window

// Verdict is the decision about a message in a prompt. Its String is the word that the public API uses.
type Verdict uint8

// The verdicts. The zero value is no verdict, so that a missing decision is noticed.
const (
	Kept       Verdict = iota + 1 // sent word for word
	Summarised                    // not sent, but covered by the summary, which is sent
	Dropped                       // neither sent nor covered by a summary that is sent
	Skipped                       // never sent: a reply that failed or has no text
)

func (v Verdict) String() string { return text(verdicts[:], int(v)) }

var verdicts = [...]string{"", "kept", "folded", "dropped", "skipped"}

// Reason is the reason for a verdict. Its String explains the reason to people.
type Reason uint8

// The reasons, by verdict.
const (
	// Kept
	Fits           Reason = iota + 1 // everything fits
	Newest                           // the message is among the newest
	NewestExchange                   // the semantic policy prefers the newest exchange
	SystemMessage                    // every policy prefers system messages
	Prioritised                      // the priority of the exchange is above normal
	Similar                          // the exchange is close in meaning to the new message
	// Summarised
	InSummary
	// Dropped
	NoRoom           // the message does not fit, and is not in the summary yet
	NoRoomForSummary // the message is in the summary, which does not fit
	NoQuestion       // the message is a reply, and the message before it is not in Input.History
	NewTooLarge      // the window cannot hold the new message; see Result.Overflow
	// Skipped
	NothingToSend
)

func (r Reason) String() string { return text(reasons[:], int(r)) }

var reasons = [...]string{
	Fits:             "everything fits",
	Newest:           "among the newest",
	NewestExchange:   "the newest exchange",
	SystemMessage:    "a system message",
	Prioritised:      "its priority",
	Similar:          "near in meaning to the new message",
	InSummary:        "in the summary",
	NoRoom:           "no room, and not in the summary yet",
	NoRoomForSummary: "in the summary, for which there was no room",
	NoQuestion:       "the message that it replies to is too far back",
	NewTooLarge:      "the window cannot hold the new message",
	NothingToSend:    "it failed or has no text",
}

func text(table []string, i int) string {
	if i <= 0 || i >= len(table) {
		return "undecided"
	}
	return table[i]
}

// Decision is the verdict on a message, with the reason.
type Decision struct {
	Verdict Verdict
	Reason  Reason
}
