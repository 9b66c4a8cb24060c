package embedded

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// Since schema 4, each record ends with a checksum: the CRC-32C of its bucket's name, its key and its value. So a
// reader notices altered bytes, and also a value that was moved to another key or another bucket. The processor
// computes a CRC-32C at several gigabytes a second.

// wrongSum and wrongOrder are values of DamageError.Fault.
const (
	wrongSum   = "the checksum of the record is wrong"
	wrongOrder = "the keys are not in order"
)

// sumLength is the length of a checksum at the end of a record.
const sumLength = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bucketSums has the checksum of each bucket's name. The checksums of the bucket's records continue this checksum.
var bucketSums = func() map[string]uint32 {
	sums := make(map[string]uint32)
	for _, name := range allBuckets() {
		sums[name] = crc32.Checksum([]byte(name), castagnoli)
	}
	return sums
}()

// keySum begins the checksum of a record. It includes the length of the key, so that no byte can move from the key to the value.
func keySum(bucketSum uint32, key []byte) uint32 {
	return crc32.Update(bucketSum+uint32(len(key)), castagnoli, key)
}

// sealed appends the checksum of a record to its value.
func sealed(bucketSum uint32, key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, crc32.Update(keySum(bucketSum, key), castagnoli, value))
}

// unseal verifies the checksum of a record, and returns the value without it.
func unseal(bucketSum uint32, key, record []byte) (value []byte, ok bool) {
	n := len(record) - sumLength
	if n < 0 {
		return nil, false
	}
	value = record[:n:n]
	return value, crc32.Update(keySum(bucketSum, key), castagnoli, value) == binary.BigEndian.Uint32(record[n:])
}

// records is a bucket of a transaction. Its methods verify each record that they return. If a record is damaged, they panic with
// a *DamageError. Store.read and Store.write return this error.
type records struct {
	bolt *bbolt.Bucket
	name string
	sum  uint32 // bucketSums[name]
}

func recordsOf(bolt *bbolt.Bucket, name string) records { return records{bolt, name, bucketSums[name]} }

func (r *reading) bucket(name string) records {
	b := r.bolt.Bucket([]byte(name))
	if b == nil {
		panic(damageIn(name, "", "the bucket is missing"))
	}
	return recordsOf(b, name)
}

func (b records) unseal(key, record []byte) []byte {
	value, ok := unseal(b.sum, key, record)
	if !ok {
		panic(damageIn(b.name, keyText(b.name, key), wrongSum))
	}
	return value
}

// Get returns the value of a key; nil if the bucket lacks the key. In that case, Get verifies the two records between
// which the key would be. If both are intact, the key is missing: no damaged key has led the search to a wrong place.
func (b records) Get(key []byte) []byte {
	c := b.bolt.Cursor()
	at, record := c.Seek(key)
	if string(at) == string(key) {
		return b.unseal(at, record)
	}
	if at != nil {
		b.unseal(at, record)
	}
	if before, record := b.previous(c, key, at); before != nil {
		b.unseal(before, record)
	}
	return nil
}

// previous moves the cursor c to the record before at. at is the key that c.Seek(sought) has found; nil at the end of
// the bucket. previous panics with a *DamageError unless sought belongs between the two records.
func (b records) previous(c *bbolt.Cursor, sought, at []byte) (key, record []byte) {
	if at == nil {
		if key, record = c.First(); key != nil { // if this transaction has emptied a bucket of several pages, Last never returns
			key, record = c.Last()
		}
	} else if key, record = c.Prev(); key == nil {
		key, record = b.beforeEmpty(c, sought)
	}
	if at != nil && bytes.Compare(at, sought) < 0 || key != nil && bytes.Compare(key, sought) >= 0 {
		panic(damageIn(b.name, rangeText(b.name, key, at), wrongOrder))
	}
	return key, record
}

// beforeEmpty finds the record before when c.Prev has returned nil. Prev returns nil at the beginning of the bucket,
// but also at a page that this transaction has emptied by removing a session.
func (b records) beforeEmpty(c *bbolt.Cursor, sought []byte) (key, record []byte) {
	if first, _ := b.bolt.Cursor().First(); first == nil || bytes.Compare(first, sought) >= 0 {
		return nil, nil
	}
	for range maxEmpty {
		if key, record = c.Prev(); key != nil {
			return key, record
		}
	}
	panic(damageIn(b.name, rangeText(b.name, nil, sought), wrongOrder))
}

// maxEmpty is more than the number of pages that one transaction can make empty. Only a damaged file has more.
const maxEmpty = 1 << 20

// ForEach calls visit for each record.
func (b records) ForEach(visit func(key, value []byte) error) error {
	return b.bolt.ForEach(func(key, record []byte) error { return visit(key, b.unseal(key, record)) })
}

// put writes a record. It copies value, because bbolt does not copy a value before the commit.
func (b records) put(key, value []byte) error {
	return b.bolt.Put(key, sealed(b.sum, key, append(make([]byte, 0, len(value)+sumLength), value...)))
}

// put writes a record.
func (w *writing) put(bucket string, key, value []byte) error {
	start := len(w.arena)
	w.arena = append(w.arena, value...)
	return w.putFrom(bucket, key, start)
}

// putFrom writes a record. The value is the part of the arena from the index start to its end.
func (w *writing) putFrom(bucket string, key []byte, start int) error {
	w.wrote = true
	b := w.bucket(bucket)
	w.arena = binary.BigEndian.AppendUint32(w.arena, crc32.Update(keySum(b.sum, key), castagnoli, w.arena[start:]))
	return b.bolt.Put(key, w.arena[start:len(w.arena):len(w.arena)])
}

func (w *writing) delete(bucket string, key []byte) error {
	w.wrote = true
	return w.bucket(bucket).bolt.Delete(key)
}

// Stats returns bbolt's figures of the bucket.
func (b records) Stats() bbolt.BucketStats { return b.bolt.Stats() }

// cursor iterates over the records of a bucket.
type cursor struct {
	bolt *bbolt.Cursor
	of   records
}

func (b records) Cursor() cursor { return cursor{b.bolt.Cursor(), b} }

func (c cursor) unseal(key, record []byte) ([]byte, []byte) {
	if key == nil {
		return nil, nil
	}
	return key, c.of.unseal(key, record)
}

func (c cursor) First() (key, value []byte) { return c.unseal(c.bolt.First()) }

func (c cursor) Next() (key, value []byte) { return c.unseal(c.bolt.Next()) }

func (c cursor) Seek(key []byte) (at, value []byte) { return c.unseal(c.bolt.Seek(key)) }
