package embedded

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"unicode/utf8"

	"parley/conversation"
	"parley/stream"
)

// journalLimit is how large the journal may grow before what is no longer live is dropped from it; where the live text
// itself takes more than half of that, twice what it takes.
const journalLimit = 8 << 20

// journal is the text of live replies: in memory, and in an append-only file beside the database, so that it outlives
// the process. It is not synced: a machine that loses power loses what the live replies said so far, no more.
//
// The file is a run of records, one for each call of write:
//
//	length of the rest (4) | CRC-32C of the rest (4) | segments: length of id (1) | id | offset (varint) | length (varint) | text
//
// A record that is not whole ends the file, whatever follows. Records of replies that are over are passed over. Its
// methods may be called from any goroutine.
type journal struct {
	// static
	path  string
	table *crc32.Table

	mu    sync.Mutex
	file  *os.File
	size  int64                // up to here the file is whole records; writes begin there
	limit int64                // of size; see journalLimit
	dead  bool                 // the file may hold text that is not live
	live  map[string]*liveText // by the reply's id

	// scratch
	buffer  []byte
	touched []*liveText
}

// liveText is what is journalled of a reply.
type liveText struct {
	key    conversation.TurnKey
	text   []byte
	stored int // how much of text is in the file; less only while a record is made
}

const recordHeader = 8

// openJournal opens the journal and reads what it has of the replies that are live. The rest of the file is dropped.
func openJournal(path string, live []conversation.TurnKey) (*journal, error) {
	j := &journal{
		path: path, table: crc32.MakeTable(crc32.Castagnoli), limit: journalLimit,
		live: make(map[string]*liveText), dead: true,
	}
	for _, key := range live {
		j.live[key.ReplyID] = &liveText{key: key}
	}
	if err := os.Remove(j.rewritePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err // a rewrite that was cut short
	}
	records, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	j.replay(records)
	if j.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := j.compact(); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

// replay takes the text of live replies from whole records.
func (j *journal) replay(records []byte) {
	for len(records) >= recordHeader {
		n := int64(binary.BigEndian.Uint32(records))
		sum := binary.BigEndian.Uint32(records[4:])
		records = records[recordHeader:]
		if n > int64(len(records)) || crc32.Checksum(records[:n], j.table) != sum {
			break
		}
		for segments := records[:n]; len(segments) > 0; {
			id, offset, text, rest, ok := cutSegment(segments)
			if !ok {
				break
			}
			if r := j.live[string(id)]; r != nil {
				r.text = append(r.text, newText(len(r.text), offset, text)...)
			}
			segments = rest
		}
		records = records[n:]
	}
	for _, r := range j.live {
		r.stored = len(r.text)
	}
}

// newText returns what a segment has beyond the text that is there: nothing if it begins after a gap.
func newText(have, offset int, text []byte) []byte {
	if offset < 0 || offset > have || offset+len(text) <= have {
		return nil
	}
	return text[have-offset:]
}

func appendSegment(record []byte, id string, offset int, text []byte) []byte {
	record = append(record, byte(len(id)))
	record = append(record, id...)
	record = binary.AppendUvarint(record, uint64(offset))
	record = binary.AppendUvarint(record, uint64(len(text)))
	return append(record, text...)
}

// cutSegment is the inverse of appendSegment; rest is what follows.
func cutSegment(record []byte) (id []byte, offset int, text, rest []byte, ok bool) {
	n := int(record[0])
	if record = record[1:]; len(record) < n {
		return nil, 0, nil, nil, false
	}
	id, record = record[:n], record[n:]
	at, n := binary.Uvarint(record)
	if n <= 0 {
		return nil, 0, nil, nil, false
	}
	record = record[n:]
	length, n := binary.Uvarint(record)
	if n <= 0 || length > uint64(len(record)-n) {
		return nil, 0, nil, nil, false
	}
	record = record[n:]
	return id, int(at), record[:length], record[length:], true
}

// seal fills in the header of a record.
func (j *journal) seal(record []byte) {
	binary.BigEndian.PutUint32(record, uint32(len(record)-recordHeader))
	binary.BigEndian.PutUint32(record[4:], crc32.Checksum(record[recordHeader:], j.table))
}

// begin makes a reply live.
func (j *journal) begin(key conversation.TurnKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live[key.ReplyID] = &liveText{key: key}
}

// end forgets a reply. Without a live reply the file is empty.
func (j *journal) end(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live[id] == nil {
		return
	}
	delete(j.live, id)
	j.dead = j.size > 0
	if len(j.live) == 0 && j.dead {
		_ = j.empty() // else the file stays as it is, dead
	}
}

// text returns what is journalled of a live reply.
func (j *journal) text(id string) (text string, live bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.live[id]
	if r == nil {
		return "", false
	}
	return string(validPrefix(r.text)), true
}

// write adds segments to the live replies that they belong to, by one record. It fails as a whole; the next record is
// then written over what became of this one.
func (j *journal) write(batch []stream.Segment[conversation.TurnKey]) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	record, touched := append(j.buffer[:0], make([]byte, recordHeader)...), j.touched[:0]
	for i := range batch {
		segment := &batch[i]
		r := j.live[segment.Key.ReplyID]
		if r == nil || r.key != segment.Key {
			continue // it has ended
		}
		have := len(r.text)
		fresh := newText(have, segment.Offset, segment.Text)
		if len(fresh) == 0 {
			continue
		}
		record = appendSegment(record, segment.Key.ReplyID, have, fresh)
		if r.stored == have {
			touched = append(touched, r)
		}
		r.text = append(r.text, fresh...)
	}
	j.buffer, j.touched = record, touched
	defer clear(touched)
	if len(touched) == 0 {
		return nil
	}
	j.seal(record)
	if _, err := j.file.WriteAt(record, j.size); err != nil {
		for _, r := range touched {
			r.text = r.text[:r.stored]
		}
		_ = j.file.Truncate(j.size) // it is written over in any case
		return unavailable(fmt.Errorf("writing the journal: %w", err))
	}
	for _, r := range touched {
		r.stored = len(r.text)
	}
	if j.size += int64(len(record)); j.size > j.limit {
		if err := j.compact(); err != nil {
			j.limit = 2 * j.size // all is stored; try again later
		}
	}
	return nil
}

// clean drops what is not live from the file, if there is any, and syncs it.
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

// compact leaves nothing in the file but the text of live replies. If it fails, the file is as it was.
func (j *journal) compact() error {
	if len(j.live) == 0 {
		return j.empty()
	}
	file, size, err := j.rewrite()
	if err != nil {
		return errors.Join(err, os.Remove(j.rewritePath()))
	}
	_ = j.file.Close()
	j.file, j.size, j.limit, j.dead = file, size, max(journalLimit, 2*size), false
	return nil
}

// empty makes the file empty.
func (j *journal) empty() error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	j.size, j.limit, j.dead = 0, journalLimit, false
	return nil
}

func (j *journal) rewritePath() string { return j.path + ".new" }

// rewrite puts a file with the live text in the place of the journal's, and returns it.
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
		if len(r.text) == 0 {
			continue
		}
		j.buffer = appendSegment(append(j.buffer[:0], make([]byte, recordHeader)...), id, 0, r.text)
		j.seal(j.buffer)
		size += int64(len(j.buffer))
		if _, err := out.Write(j.buffer); err != nil {
			return nil, 0, err
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

// validPrefix returns the whole characters that text begins with.
func validPrefix(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	for n := 0; ; {
		c, size := utf8.DecodeRune(text[n:])
		if c == utf8.RuneError && size <= 1 {
			return text[:n]
		}
		n += size
	}
}
