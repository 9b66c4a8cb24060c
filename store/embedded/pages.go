package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// pageCheck reads all pages of a file that its newest meta page reaches, without bbolt and without the memory map. It checks
// everything on which bbolt relies: that each page is inside the file, has its own number and the right kind, and is reached only
// once; that entries are where bbolt writes them; that keys rise, and stay between the keys of the page above. Each record's
// checksum is verified, and the messages of each session must be numbered without a gap.
//
// The cost is linear in the number of pages. The memory is bounded: one bit for each page, a buffer of runBuffer bytes, and the
// keys of one page on each level of the tree.
type pageCheck struct {
	file   io.ReaderAt
	meta   metaPage
	sums   sums   // the records that have checksums
	seen   []byte // one bit for each page that was reached
	most   int    // number of damages after which the check stops
	log    func(read, all uint64)
	logged time.Time

	result  checkResult
	run     pageRun
	table   []byte            // the elements of the page that is being read
	last    []byte            // the previous key in the same bucket; nil before the first key
	about   map[string][]byte // the records of metaBucket, with their checksums
	message struct {          // the previous message
		key     []byte
		number  uint32
		unknown bool // the previous message is damaged or lost
	}
}

// checkResult is the outcome of a pageCheck.
type checkResult struct {
	read     uint64 // number of pages that were read
	buckets  []BucketReport
	counted  bool // set if messages is the number of messages in all sessions
	messages int64
	damages  []*DamageError
	more     int // damages that are not in the list
}

const (
	// runBuffer is the size of the buffer for pages. It holds the elements of the largest page: 65,535 with 16 bytes each.
	runBuffer = 1 << 20
	// maxDepth is the greatest depth of a tree. A branch page has at least two children, so no file of 2^40 pages is deeper.
	maxDepth = 40
	// logEvery is the interval of progress reports: often enough to see that a long check goes on.
	logEvery = 5 * time.Second
)

// errEnough ends a check that has found enough damages.
var errEnough = errors.New("enough damages")

// keyRange is the range of keys that a page may contain: from the first one up to, but not including, the second one. nil means
// no bound.
type keyRange struct{ from, to []byte }

func newPageCheck(file io.ReaderAt, meta metaPage, most int, log func(read, all uint64)) *pageCheck {
	return &pageCheck{
		file: file, meta: meta, most: most, log: log, logged: time.Now(), seen: make([]byte, meta.pages/8+1),
		about: make(map[string][]byte), run: pageRun{buffer: make([]byte, runBuffer)},
	}
}

// all checks the whole file. It never panics: a panic becomes a damage.
func (c *pageCheck) all() (result checkResult) {
	defer func() {
		if p := recover(); p != nil {
			_ = c.damage(damageIn("", "", "the check failed: "+panicText(p)))
		}
		result = c.result
	}()
	_ = c.buckets() // it only fails with errEnough
	return c.result
}

// damage records a damage. It returns errEnough if the check should stop.
func (c *pageCheck) damage(d *DamageError) error {
	c.message.unknown = true
	if len(c.result.damages) < c.most {
		c.result.damages = append(c.result.damages, d)
	} else {
		c.result.more++
	}
	if c.most == 1 {
		return errEnough
	}
	return nil
}

// buckets reads the list of buckets, then the schema, then all buckets, and at last the list of free pages.
func (c *pageCheck) buckets() error {
	var all []bucketEntry
	err := c.tree(c.meta.root, "", keyRange{}, 0, &all)
	if err != nil {
		return err
	}
	for _, about := range []bool{true, false} { // metaBucket comes first, because it has the schema
		for _, b := range all {
			if about != (b.name == metaBucket) {
				continue
			}
			if err := c.bucket(b); err != nil {
				return err
			}
		}
		if about {
			if err := c.readSums(all); err != nil {
				return err
			}
		}
	}
	return c.freelist()
}

func (c *pageCheck) bucket(b bucketEntry) error {
	c.last, c.message.key, c.message.unknown = nil, nil, false
	c.result.buckets = append(c.result.buckets, BucketReport{Name: b.name})
	if b.root == 0 {
		return c.inline(b)
	}
	return c.tree(b.root, b.name, keyRange{}, 0, nil)
}

// readSums decides from the records of metaBucket which records have checksums. The names of buckets have no checksums,
// so readSums checks them, unless the file has a later schema. Without the record of the schema, Open would take the
// file for a new one.
func (c *pageCheck) readSums(all []bucketEntry) (err error) {
	version := schemaVersion
	if c.sums, version, err = readSums(c.about); err != nil {
		return c.damage(damageIn(metaBucket, "", err.Error()))
	}
	c.result.counted = c.sums.some && c.sums.bucket == ""
	if version == "" && len(all) > 0 {
		return c.damage(damageIn(metaBucket, "", "the record of the schema is missing"))
	}
	for _, b := range all {
		if _, known := bucketSums[b.name]; !known && version <= schemaVersion {
			return c.damage(&DamageError{Page: int64(b.number), Fault: "a bucket has an unknown name"})
		}
	}
	return nil
}

// bucketEntry is an entry in the list of buckets. The pages of a small bucket are in the entry itself.
type bucketEntry struct {
	name   string
	root   uint64 // the first page; 0 if page contains the bucket
	page   []byte
	number uint64 // the number of the page that has the entry
}

// inline checks a bucket in the list of buckets.
func (c *pageCheck) inline(b bucketEntry) error {
	c.run.start(bytes.NewReader(b.page), 0, int64(len(b.page)))
	h, err := c.header()
	if err != nil || h.flags != leafFlag || h.overflow != 0 {
		return c.damage(&DamageError{Page: int64(b.number), Bucket: b.name, Fault: "the bucket has no valid page"})
	}
	return c.leaf(h, int64(b.number), b.name, keyRange{}, nil)
}

// header is the header of a page.
type header struct {
	id           uint64
	flags, count uint16
	overflow     uint32
}

func (c *pageCheck) header() (header, error) {
	b, err := c.run.take(pageHeader)
	if err != nil {
		return header{}, err
	}
	return header{native.Uint64(b), native.Uint16(b[8:]), native.Uint16(b[10:]), native.Uint32(b[12:])}, nil
}

// page begins to read a page with its overflow pages. It returns an error that says what is wrong with the page.
func (c *pageCheck) page(id uint64) (header, error) {
	if id < metaPages || id >= c.meta.pages {
		return header{}, fmt.Errorf("the page is not in the file, which has %d pages", c.meta.pages)
	}
	size := int64(c.meta.pageSize)
	c.run.start(c.file, int64(id)*size, size)
	h, err := c.header()
	switch {
	case err != nil:
		return h, err
	case h.id != id:
		return h, errors.New("the page has the number of another page")
	case uint64(h.overflow) >= c.meta.pages-id:
		return h, errors.New("the page is longer than the file")
	}
	for n := id; n <= id+uint64(h.overflow); n++ {
		if c.seen[n/8]&(1<<(n%8)) != 0 {
			return h, errors.New("the page is used twice")
		}
		c.seen[n/8] |= 1 << (n % 8)
	}
	c.run.extend(int64(h.overflow) * size)
	c.result.read += uint64(h.overflow) + 1
	if now := time.Now(); c.log != nil && now.Sub(c.logged) > logEvery {
		c.logged = now
		c.log(c.result.read, c.meta.pages)
	}
	return h, nil
}

// tree checks a page and all pages below it. bucket is "" for the list of buckets. tree appends the entries of that list to list.
func (c *pageCheck) tree(id uint64, bucket string, within keyRange, depth int, list *[]bucketEntry) error {
	h, err := c.page(id)
	switch {
	case err != nil:
	case depth > maxDepth:
		err = errors.New("the tree of pages is too deep")
	case h.flags == leafFlag:
		return c.leaf(h, int64(id), bucket, within, list)
	case h.flags == branchFlag:
		return c.branch(h, bucket, within, depth, list)
	default:
		err = errors.New("the page is neither a leaf nor a branch")
	}
	return c.lost(id, bucket, within, err)
}

// lost records that a page cannot be read, and so its records are lost.
func (c *pageCheck) lost(id uint64, bucket string, within keyRange, err error) error {
	keys := rangeText(bucket, within.from, within.to)
	return c.damage(&DamageError{Page: int64(id), Bucket: bucket, Keys: keys, Fault: err.Error()})
}

// child is an element of a branch page.
type child struct {
	key  []byte
	page uint64
}

func (c *pageCheck) branch(h header, bucket string, within keyRange, depth int, list *[]bucketEntry) error {
	children, err := c.children(h, within)
	if err != nil {
		return c.lost(h.id, bucket, within, err)
	}
	for i := range children {
		below := keyRange{children[i].key, within.to}
		if i+1 < len(children) {
			below.to = children[i+1].key
		}
		if err := c.tree(children[i].page, bucket, below, depth+1, list); err != nil {
			return err
		}
	}
	return nil
}

// children reads the elements of a branch page.
func (c *pageCheck) children(h header, within keyRange) ([]child, error) {
	if h.count == 0 {
		return nil, errors.New("the branch page has no children")
	}
	if err := c.readTable(h.count); err != nil {
		return nil, err
	}
	children := make([]child, 0, h.count)
	for i := range int(h.count) {
		e := c.table[i*elementSize:]
		key, err := c.key(i, native.Uint32(e), native.Uint32(e[4:]))
		if err != nil {
			return nil, err
		}
		before := within.from
		if i > 0 {
			before = children[i-1].key
		}
		if !inOrder(before, key, within.to, i == 0) {
			return nil, errors.New(wrongOrder)
		}
		children = append(children, child{bytes.Clone(key), native.Uint64(e[8:])})
	}
	return children, nil
}

// inOrder reports whether key is after the key before, and before the key to. If equal is set, key may also be the key
// before.
func inOrder(before, key, to []byte, equal bool) bool {
	if n := bytes.Compare(before, key); before != nil && (n > 0 || n == 0 && !equal) {
		return false
	}
	return to == nil || bytes.Compare(key, to) < 0
}

// readTable reads the elements at the beginning of a page. They are valid until the next page.
func (c *pageCheck) readTable(count uint16) error {
	b, err := c.run.take(int(count) * elementSize)
	c.table = append(c.table[:0], b...)
	return err
}

// key reads the key of element i, which must be at the position pos after the element. The key is valid until the next read.
func (c *pageCheck) key(i int, pos, size uint32) ([]byte, error) {
	if size == 0 || size > maxKey || int64(pageHeader+i*elementSize)+int64(pos) != c.run.position() {
		return nil, fmt.Errorf("entry %d is not where it should be", i)
	}
	return c.run.take(int(size))
}

// leaf checks the entries of a leaf page. number is the number of the page; for a small bucket, of the page that has
// its entry.
func (c *pageCheck) leaf(h header, number int64, bucket string, within keyRange, list *[]bucketEntry) error {
	damaged := func(fault string) error {
		from := within.from
		if c.last != nil {
			from = c.last
		}
		return c.damage(&DamageError{Page: number, Bucket: bucket, Keys: rangeText(bucket, from, within.to), Fault: fault})
	}
	if err := c.readTable(h.count); err != nil {
		return damaged(err.Error())
	}
	for i := range int(h.count) {
		e := c.table[i*elementSize:]
		key, err := c.key(i, native.Uint32(e[4:]), native.Uint32(e[8:]))
		if err != nil {
			return damaged(err.Error())
		}
		before, first := c.last, false
		if i == 0 && bytes.Compare(within.from, before) > 0 {
			before, first = within.from, true
		}
		if !inOrder(before, key, within.to, first) {
			return damaged(wrongOrder)
		}
		c.last = append(c.last[:0], key...)
		isBucket := native.Uint32(e) == bucketFlag
		if native.Uint32(e) > bucketFlag || isBucket != (list != nil) {
			return damaged(fmt.Sprintf("entry %d is of the wrong kind", i))
		}
		if isBucket {
			err = c.entry(number, native.Uint32(e[12:]), list)
		} else {
			err = c.record(number, bucket, native.Uint32(e[12:]))
		}
		if errors.Is(err, errEnough) {
			return err
		}
		if err != nil {
			return damaged(err.Error())
		}
	}
	return nil
}

// entry reads an entry in the list of buckets, with the name c.last.
func (c *pageCheck) entry(number int64, size uint32, list *[]bucketEntry) error {
	if size < bucketHeader || int(size) > c.meta.pageSize {
		return errors.New("an entry in the list of buckets is malformed")
	}
	b, err := c.run.take(int(size))
	if err != nil {
		return err
	}
	entry := bucketEntry{name: string(c.last), root: native.Uint64(b), number: uint64(number)}
	if entry.root == 0 {
		entry.page = bytes.Clone(b[bucketHeader:])
	}
	*list = append(*list, entry)
	return nil
}
