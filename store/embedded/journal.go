package embedded

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"unicode/utf8"

	"parley/conversation"
	"parley/stream"
)

// journalLimit is the size, in bytes, above which the journal is rewritten without ended replies. If the live text takes more
// than half of this size, the limit is twice the live text, so that each rewrite can free space. Rewriting 8 MB, or reading 8 MB
// when the store is opened, takes well under a second.
const journalLimit = 8 << 20

// journal holds the text of live replies, in memory and in an append-only file beside the database. The file survives the
// process. A write does not sync the file, so live replies may lose text in a power failure.
//
// The file is a sequence of entries, one for each call of write:
//
//	length of the rest (4) | CRC-32C of the rest (4) | segments: length of id (1) | id | offset (varint) | length (varint) | text
//
// Reading stops at the first entry that is incomplete or damaged. Segments of replies that are not live are skipped. The methods
// may be called from any goroutine.
type journal struct {
	// constant
	path string

	mu    sync.Mutex
	file  *os.File
	size  int64 // total length of the entries; the next entry is written at this offset
	limit int64 // the file is rewritten when size exceeds limit; see journalLimit
	room  reserve
	dead  bool                 // the file may contain text of ended replies
	live  map[string]*liveText // by reply id

	// memory that write reuses
	buffer  []byte
	touched []*liveText
}

// liveText is the journalled text of a reply.
type liveText struct {
	key    conversation.TurnKey
	text   sharedText
	stored int // number of bytes of text that the file contains; less than text.size only while write runs
}

const entryHeader = 8 // bytes

// journalSuffix is the end of the journal's path, after the path of the database.
const journalSuffix = "-journal"

// openJournal opens or creates the journal and reads the text of the live replies. It removes everything else from the file. It
// logs a warning if it cannot read the whole file.
func openJournal(path string, live []conversation.TurnKey, log *slog.Logger) (*journal, error) {
	j := &journal{
		path: path, limit: journalLimit, live: make(map[string]*liveText), dead: true,
		room: reserve{size: journalReserve, allocate: allocate},
	}
	for _, key := range live {
		j.live[key.ReplyID] = &liveText{key: key}
	}
	if err := os.Remove(j.rewritePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // could not remove the file of an unfinished rewrite
	}
	entries, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	j.size = j.replay(entries)
	if unreadable := unreadableBytes(entries[j.size:]); unreadable > 0 {
		log.Warn("the end of the journal cannot be read, as after a power failure or a damage: replies that were live may lack text",
			"file", path, "bytes", unreadable, "of", len(entries))
	}
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := j.file.Truncate(j.size); err != nil { // removes an incomplete or damaged entry
		return nil, errors.Join(err, j.file.Close())
	}
	if err := j.compact(); err != nil && !noSpace(err) { // on a full disk, the file stays unchanged
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

// cutEntry returns the segments of the first entry. ok is false at the end of the file, and if the entry is incomplete or
// damaged.
func cutEntry(entries []byte) (segments, rest []byte, ok bool) {
	if len(entries) < entryHeader {
		return nil, nil, false
	}
	n, sum := int64(binary.BigEndian.Uint32(entries)), binary.BigEndian.Uint32(entries[4:])
	entries = entries[entryHeader:]
	if n == 0 || n > int64(len(entries)) || crc32.Checksum(entries[:n], castagnoli) != sum {
		return nil, nil, false
	}
	return entries[:n], entries[n:], true
}

// unreadableBytes returns the number of bytes after the last whole entry that should be an entry. Zeros at the end of the file
// are none: empty writes them.
func unreadableBytes(afterEntries []byte) int64 {
	return int64(len(bytes.TrimRight(afterEntries, "\x00")))
}

// replay reads the text of live replies from the file's content. It returns the total length of the whole entries.
func (j *journal) replay(entries []byte) (size int64) {
	for {
		segments, rest, ok := cutEntry(entries)
		if !ok {
			break
		}
		for len(segments) > 0 {
			id, offset, text, rest, ok := cutSegment(segments)
			if !ok {
				break
			}
			if r := j.live[string(id)]; r != nil {
				r.text.append(newText(r.text.size, offset, text))
			}
			segments = rest
		}
		size += int64(len(entries) - len(rest))
		entries = rest
	}
	for _, r := range j.live {
		r.stored = r.text.size
	}
	return size
}

// newText returns the bytes of a segment that the journal lacks. have is the number of bytes of the reply that the journal has
// already. newText returns nil if the segment adds no bytes, or if it begins after a gap.
func newText(have, offset int, text []byte) []byte {
	if offset < 0 || offset > have || offset+len(text) <= have {
		return nil
	}
	return text[have-offset:]
}

func appendSegment(entry []byte, id string, offset int, text []byte) []byte {
	entry = append(entry, byte(len(id)))
	entry = append(entry, id...)
	entry = binary.AppendUvarint(entry, uint64(offset))
	entry = binary.AppendUvarint(entry, uint64(len(text)))
	return append(entry, text...)
}

// cutSegment decodes the first segment of an entry (see appendSegment). rest is the remainder of the entry. entry must not be
// empty.
func cutSegment(entry []byte) (id []byte, offset int, text, rest []byte, ok bool) {
	n := int(entry[0])
	if entry = entry[1:]; len(entry) < n {
		return nil, 0, nil, nil, false
	}
	id, entry = entry[:n], entry[n:]
	at, n := binary.Uvarint(entry)
	if n <= 0 {
		return nil, 0, nil, nil, false
	}
	text, rest, ok = cutBytes(entry[n:])
	return id, int(at), text, rest, ok
}

// seal sets the header of an entry: its length and its checksum.
func (j *journal) seal(entry []byte) {
	binary.BigEndian.PutUint32(entry, uint32(len(entry)-entryHeader))
	binary.BigEndian.PutUint32(entry[4:], crc32.Checksum(entry[entryHeader:], castagnoli))
}

// begin adds a live reply.
func (j *journal) begin(key conversation.TurnKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live[key.ReplyID] = &liveText{key: key}
}

// end removes a reply. If no other reply is live, end empties the file.
func (j *journal) end(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live[id] == nil {
		return
	}
	delete(j.live, id)
	j.dead = j.size > 0
	if len(j.live) == 0 && j.dead {
		_ = j.empty() // if this fails, the next clean empties the file
	}
}

// share replaces the text of a live reply by the beginning of its final text, if they are equal. So the text is in memory
// only once while its turn ends.
func (j *journal) share(key conversation.TurnKey, final string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.live[key.ReplyID]; r != nil && r.key == key {
		r.text.replace(final)
	}
}

// text returns the journalled text of a reply, without an incomplete character at its end. The result live is false if the
// reply is not live.
func (j *journal) text(id string) (text string, live bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.live[id]
	if r == nil {
		return "", false
	}
	return validPrefix(r.text.String()), true
}

// write appends segments to their live replies, and writes the segments to the file as one entry. If the write fails, no reply
// changes, and the next entry overwrites the incomplete entry.
func (j *journal) write(batch []stream.Segment[conversation.TurnKey]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	entry, touched := append(j.buffer[:0], make([]byte, entryHeader)...), j.touched[:0]
	for i := range batch {
		segment := &batch[i]
		r := j.live[segment.Key.ReplyID]
		if r == nil || r.key != segment.Key {
			continue // the reply has ended, or the key belongs to another turn
		}
		have := r.text.size
		fresh := newText(have, segment.Offset, segment.Text)
		if len(fresh) == 0 {
			continue
		}
		entry = appendSegment(entry, segment.Key.ReplyID, have, fresh)
		if r.stored == have {
			touched = append(touched, r)
		}
		r.text.append(fresh)
	}
	j.buffer, j.touched = entry, touched
	defer clear(touched)
	if len(touched) == 0 {
		return nil
	}
	j.seal(entry)
	if _, err := j.file.WriteAt(entry, j.size); err != nil {
		for _, r := range touched {
			r.text.truncate(r.stored)
		}
		_ = j.file.Truncate(j.size) // if this fails, the next entry overwrites the incomplete entry
		j.room.upTo = j.size
		return unavailable(fmt.Errorf("writing the journal: %w", err))
	}
	for _, r := range touched {
		r.stored = r.text.size
	}
	if j.size += int64(len(entry)); j.size > j.limit {
		if err := j.compact(); err != nil {
			j.limit = 2 * j.size // the file is unchanged; try again when its size has doubled
		}
	}
	return nil
}

// clean removes the text of ended replies from the file, and syncs the file.
func (j *journal) clean() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dead {
		if err := j.compact(); err != nil {
			return err
		}
	}
	return j.file.Sync()
}

// compact rewrites the file so that it contains only live replies. If this fails, the file is unchanged.
func (j *journal) compact() error {
	if len(j.live) == 0 {
		return j.empty()
	}
	return j.replace()
}

// replace writes the live text to a new file, which replaces the file. If this fails, the file is unchanged.
func (j *journal) replace() error {
	file, size, err := j.rewrite()
	if err != nil {
		return errors.Join(err, os.Remove(j.rewritePath()))
	}
	_ = j.file.Close()
	j.file, j.size, j.limit, j.dead, j.room.upTo = file, size, max(journalLimit, 2*size), false, 0
	return nil
}

// empty removes the text of ended replies when no reply is live. It overwrites a small file with zeros, at which replay
// ends. A truncation would give the reserve away, and a new allocation takes 0.5 ms.
func (j *journal) empty() error {
	written := j.size > 0 && j.size <= j.room.size
	if written {
		j.buffer = append(j.buffer[:0], make([]byte, j.size)...)
		_, err := j.file.WriteAt(j.buffer, 0)
		written = err == nil
	}
	if !written && j.size > 0 {
		if err := j.file.Truncate(0); err != nil {
			return err
		}
		j.room.upTo = 0
	}
	j.size, j.limit, j.dead = 0, journalLimit, false
	return nil
}

// keepRoom makes the reserve of the file again if necessary. It returns an error only if the disk is full.
func (j *journal) keepRoom() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room.keep(j.file, j.size); err != nil && noSpace(err) {
		return fmt.Errorf("keeping room for the journal: %w", err)
	}
	return nil
}

// inPlace returns an error if the file is no longer at its path.
func (j *journal) inPlace() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	opened, err := j.file.Stat()
	if err != nil {
		return err
	}
	return inPlace(j.path, opened)
}

// restore writes the file again from memory.
func (j *journal) restore() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.replace()
}

func (j *journal) rewritePath() string { return j.path + ".new" }

// rewrite writes the live text to a new file, which replaces the journal's file. It returns the new file and its size.
func (j *journal) rewrite() (_ *os.File, size int64, err error) {
	file, err := os.OpenFile(j.rewritePath(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	out := bufio.NewWriter(file)
	for id, r := range j.live {
		offset := 0
		for _, part := range r.text.parts {
			j.buffer = appendSegment(append(j.buffer[:0], make([]byte, entryHeader)...), id, offset, part)
			j.seal(j.buffer)
			offset += len(part)
			size += int64(len(j.buffer))
			if _, err := out.Write(j.buffer); err != nil {
				return nil, 0, err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return nil, 0, err
	}
	return file, size, os.Rename(j.rewritePath(), j.path)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}

// validPrefix returns the longest prefix of text that is valid UTF-8.
func validPrefix(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	for n := 0; ; {
		c, size := utf8.DecodeRuneInString(text[n:])
		if c == utf8.RuneError && size <= 1 {
			return text[:n]
		}
		n += size
	}
}
