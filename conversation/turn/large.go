package turn

import (
	"time"

	"parley/stream"
)

// To end a turn takes memory for several copies of the reply's text: joined, as a record, and in the store's buffers. So at most
// endingsAtOnce turns with a large text end at the same time. 64 KiB is more than nearly all replies have, and small enough that
// thousands of smaller replies may end at once.
const (
	largeText     = 64 << 10 // bytes
	endingsAtOnce = 4
)

// largeEndings has an element for each turn with a large text that is ending.
type largeEndings chan struct{}

// enter waits until the turn of a reply may end. After endTimeout it no longer waits, because the caller should learn within
// this time that the store does not respond. The turn calls done when it has ended.
func (l largeEndings) enter(reply *stream.Reply) (done func()) {
	if size, _ := reply.Size(); size <= largeText {
		return func() {}
	}
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case l <- struct{}{}:
		return func() { <-l }
	case <-timer.C:
		return func() {}
	}
}
