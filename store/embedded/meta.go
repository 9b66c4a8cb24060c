package embedded

import (
	"encoding/binary"
	"os"
)

// These are parts of bbolt's file format, which bbolt does not export (its package internal/common, version 1.5.0). Numbers have
// the byte order of the machine.
const (
	pageHeader  = 16 // id (8), flags (2), count (2), overflow (4)
	elementSize = 16 // of branch pages: pos (4), ksize (4), page (8); of leaf pages: flags (4), pos (4), ksize (4), vsize (4)
	metaEnd     = pageHeader + 64
	metaSummed  = 56 // the number of bytes of a meta that its checksum covers

	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	bucketFlag   = 0x01 // of a leaf element: its value is a bucket

	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	noFreelist     = ^uint64(0)
	maxKey         = 32768
	bucketHeader   = 16 // root page (8), sequence (8)
	smallestPage   = 1024
	largestPage    = 16 << 20
	metaPages      = 2
	countInFirstID = 0xFFFF // count of a freelist page that has its real count in front of the first id
)

var native = binary.NativeEndian

// metaPage is the content of a meta page.
type metaPage struct {
	pageSize int
	root     uint64 // the first page of the bucket that contains all buckets
	freelist uint64 // noFreelist if the file has none
	pages    uint64 // number of pages in use, including free pages among them
	tx       uint64
}

// readMeta decodes the first metaEnd bytes of a meta page. ok is false if its checksum or its format is wrong.
func readMeta(page []byte) (m metaPage, ok bool) {
	b := page[pageHeader:metaEnd]
	m = metaPage{
		pageSize: int(native.Uint32(b[8:])), root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		pages: native.Uint64(b[40:]), tx: native.Uint64(b[48:]),
	}
	valid := native.Uint32(b) == boltMagic && native.Uint32(b[4:]) == boltVersion
	return m, valid && native.Uint64(b[metaSummed:]) == fnv64a(b[:metaSummed])
}

// fnv64a is the checksum of a meta page. Unlike hash/fnv, it allocates nothing.
func fnv64a(b []byte) uint64 {
	sum := uint64(0xcbf29ce484222325)
	for _, c := range b {
		sum = (sum ^ uint64(c)) * 0x100000001b3
	}
	return sum
}

// newestMeta reads both meta pages and returns the newer one. Both must be valid. If one is invalid, bbolt would
// continue with the other one, and so could take back the last transaction, although it was acknowledged. An
// interrupted commit does not make a meta page invalid: the meta is within the first 512 bytes of its page, and disks
// write these as a whole.
func newestMeta(file *os.File, size int64) (metaPage, *DamageError) {
	b := make([]byte, metaEnd)
	if _, err := file.ReadAt(b, 0); err != nil {
		return metaPage{}, &DamageError{Page: 0, Fault: "the file has no meta page: " + err.Error()}
	}
	first, ok := readMeta(b)
	if !ok && native.Uint32(b[pageHeader:]) != boltMagic && !hasMeta(file) {
		return metaPage{}, &DamageError{Page: 0, Fault: "the file is not a store of Parley, or its meta pages are overwritten"}
	}
	if !ok || first.pageSize < smallestPage || first.pageSize > largestPage || first.pageSize&(first.pageSize-1) != 0 {
		return metaPage{}, &DamageError{Page: 0, Fault: "the meta page is invalid"}
	}
	if _, err := file.ReadAt(b, int64(first.pageSize)); err != nil {
		return metaPage{}, &DamageError{Page: 1, Fault: "the meta page cannot be read: " + err.Error()}
	}
	second, ok := readMeta(b)
	if !ok || second.pageSize != first.pageSize {
		return metaPage{}, &DamageError{Page: 1, Fault: "the meta page is invalid"}
	}
	newest := first
	if second.tx > first.tx {
		newest = second
	}
	if newest.pages < metaPages || newest.pages > uint64(size)/uint64(newest.pageSize) {
		return metaPage{}, &DamageError{Page: noPage, Fault: "the file is truncated: its last pages are missing"}
	}
	return newest, nil
}

// hasMeta reports whether the file has a second meta page, at any page size that bbolt supports.
func hasMeta(file *os.File) bool {
	b := make([]byte, metaEnd)
	for at := int64(smallestPage); at <= largestPage; at *= 2 {
		if _, err := file.ReadAt(b, at); err != nil {
			return false
		}
		if _, ok := readMeta(b); ok {
			return true
		}
	}
	return false
}
