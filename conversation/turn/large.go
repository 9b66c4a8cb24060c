package turn

import (
	"time"

	"parley/stream"
)

// The end of a turn needs memory for several copies of the reply's text: the joined text, the record, and the store's
// buffers. So at most endingsAtOnce turns with a large text end at the same time. Nearly all replies have less than 64
// KiB, and thousands of such replies may end at once.
const (
	largeText     = 64 << 10 // bytes
	endingsAtOnce = 4
)

// largeEndings has an element for each turn that is ending with a large text.
type largeEndings chan struct{}

// enter waits until the turn of a reply may end. After endTimeout, enter no longer waits, because the caller must learn
// within this time that the store does not respond. The turn calls done when it has ended.
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
