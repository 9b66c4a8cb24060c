package embedded

import (
	"errors"
	"fmt"
	"io"
)

// pageRun reads a page and its overflow pages from front to back, through a buffer of fixed size.
type pageRun struct {
	file   io.ReaderAt
	first  int64 // offset of the page in the file
	end    int64 // offset of the first byte after the page
	next   int64 // offset of the first byte that is not in the buffer
	buffer []byte
	unread []byte // the part of the buffer that take has not returned yet
}

// start begins with the page at an offset.
func (r *pageRun) start(file io.ReaderAt, first, size int64) {
	r.file, r.first, r.end, r.next, r.unread = file, first, first+size, first, nil
}

// extend adds overflow pages to the page.
func (r *pageRun) extend(size int64) { r.end += size }

// position is the offset of the next byte, from the beginning of the page.
func (r *pageRun) position() int64 { return r.next - r.first - int64(len(r.unread)) }

// take returns the next n bytes. They are valid until the next call. n is at most the size of the buffer.
func (r *pageRun) take(n int) ([]byte, error) {
	if n > len(r.unread) {
		if err := r.fill(n); err != nil {
			return nil, err
		}
	}
	taken := r.unread[:n]
	r.unread = r.unread[n:]
	return taken, nil
}

// errPageEnd means that entries do not fit into their page.
var errPageEnd = errors.New("the entries of the page are longer than the page")

// fill reads from the file until at least n bytes are unread. It reads nothing after end, which excludes the overflow
// pages until extend: most pages have none.
func (r *pageRun) fill(n int) error {
	if int64(n-len(r.unread)) > r.end-r.next || n > len(r.buffer) {
		return errPageEnd
	}
	kept := copy(r.buffer, r.unread)
	more := r.buffer[kept:min(int64(len(r.buffer)), int64(kept)+r.end-r.next)]
	if _, err := r.file.ReadAt(more, r.next); err != nil {
		return fmt.Errorf("the page cannot be read: %w", err)
	}
	r.next += int64(len(more))
	r.unread = r.buffer[:kept+len(more)]
	return nil
}

// skip skips the next n bytes.
func (r *pageRun) skip(n int64) error {
	if have := int64(len(r.unread)); n > have {
		if n-have > r.end-r.next {
			return errPageEnd
		}
		r.next += n - have
		r.unread = nil
		return nil
	}
	r.unread = r.unread[n:]
	return nil
}
