package main

import "fmt"

// The bounds of PARLEY_MAX_REPLY_BYTES. With less than a page of text, most replies would be cut off. With more than 16 MiB, the
// last frame of a reply could exceed the 64 MiB that the Go client reads, because JSON escapes some characters.
const (
	minReplyBytes = 4 << 10
	maxReplyBytes = 16 << 20
)

func checkReplyBytes(n int) error {
	if n < minReplyBytes || n > maxReplyBytes {
		return fmt.Errorf("--max-reply-bytes (PARLEY_MAX_REPLY_BYTES): must be from %d to %d, not %d", minReplyBytes, maxReplyBytes, n)
	}
	return nil
}
