package window

// Verdict is what becomes of a message in a prompt (design section 5).
type Verdict uint8

// The verdicts. The zero value is none of them, so that a message nobody decided about shows.
const (
	Kept       Verdict = iota + 1 // sent word for word
	Summarised                    // not sent, but in the summary that is
	Dropped                       // the model has no trace of it
	Skipped                       // never sent: it failed or has no text
)

func (v Verdict) String() string { return text(verdicts[:], int(v)) }

var verdicts = [...]string{"", "kept", "folded", "dropped", "skipped"}

// Reason is why a message has its verdict. Its String is text for people.
type Reason uint8

// The reasons, by verdict.
const (
	// Kept
	Fits           Reason = iota + 1 // everything does
	Newest                           // the newest stay
	NewestExchange                   // it always stays, by meaning
	SystemMessage
	Prioritised
	Near
	// Folded
	InSummary
	// Dropped
	NoRoom           // neither word for word nor, yet, in the summary
	NoRoomForSummary // it is in the summary, but that could not be sent
	Headless         // an answer without its question, which is too far back
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
	Near:             "near in meaning to the new message",
	InSummary:        "in the summary",
	NoRoom:           "no room, and not in the summary yet",
	NoRoomForSummary: "in the summary, for which there was no room",
	Headless:         "the message that it answers is too far back",
	NewTooLarge:      "the window cannot hold the new message",
	NothingToSend:    "it failed or has no text",
}

func text(table []string, i int) string {
	if i <= 0 || i >= len(table) {
		return "undecided"
	}
	return table[i]
}

// Decision is what becomes of a message, and why.
type Decision struct {
	Verdict Verdict
	Reason  Reason
}
