package window

// Verdict is what happens to a message in a prompt. Its String is the public word.
type Verdict uint8

// The verdicts. The zero value is none of them, so that a missing decision shows.
const (
	Kept       Verdict = iota + 1 // sent word for word
	Summarised                    // not sent, but in the summary, which is
	Dropped                       // neither sent nor in a summary that is sent
	Skipped                       // never sent: it failed or has no text
)

func (v Verdict) String() string { return text(verdicts[:], int(v)) }

var verdicts = [...]string{"", "kept", "folded", "dropped", "skipped"}

// Reason is why a message has its verdict. Its String is a text for people.
type Reason uint8

// The reasons, by verdict.
const (
	// Kept
	Fits           Reason = iota + 1 // everything fits
	Newest                           // the newest are kept
	NewestExchange                   // the semantic policy always keeps it
	SystemMessage
	Prioritised
	Similar
	// Summarised
	InSummary
	// Dropped
	NoRoom           // it does not fit, and is not in the summary yet
	NoRoomForSummary // it is in the summary, which does not fit
	NoQuestion       // a reply whose message is not listed
	NewTooLarge      // Result.Overflow
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

// Decision is what happens to a message, and why.
type Decision struct {
	Verdict Verdict
	Reason  Reason
}
