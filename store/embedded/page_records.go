package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// This file has the part of pageCheck that verifies records and the list of free pages.

// record verifies the record with the key c.last.
func (c *pageCheck) record(number int64, bucket string, size uint32) error {
	f := &c.result.buckets[len(c.result.buckets)-1]
	f.Records++
	f.Bytes += int64(len(c.last)) + int64(size)
	key := c.last
	if bucket == metaBucket && size < uint32(c.meta.pageSize) {
		record, err := c.run.take(int(size))
		c.about[string(key)] = bytes.Clone(record)
		return err
	}
	if !c.sums.has(bucket, key) {
		return c.run.skip(int64(size))
	}
	wrong := func(fault string) error {
		return c.damage(&DamageError{Page: number, Bucket: bucket, Keys: keyText(bucket, key), Fault: fault})
	}
	if size < sumLength {
		return errors.Join(c.run.skip(int64(size)), wrong("the record has no checksum"))
	}
	if bucket == sessionsBucket && size <= runBuffer {
		return c.session(size, wrong)
	}
	sum, tail, err := c.sum(keySum(bucketSums[bucket], key), int64(size)-sumLength)
	if err != nil {
		return err
	}
	stored, err := c.run.take(sumLength)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(stored) != sum {
		return wrong(wrongSum)
	}
	if bucket == messagesBucket {
		return c.numbered(number, tail)
	}
	return nil
}

// session verifies the record of a session with the key c.last, and counts its messages.
func (c *pageCheck) session(size uint32, wrong func(fault string) error) error {
	record, err := c.run.take(int(size))
	if err != nil {
		return err
	}
	value, ok := unseal(bucketSums[sessionsBucket], c.last, record)
	if !ok {
		return wrong(wrongSum)
	}
	session, err := readSession(value, "")
	if err != nil {
		return wrong(err.Error())
	}
	c.result.messages += int64(session.MessageCount)
	return nil
}

// sum adds the next n bytes to a checksum. tail is the number in the last four of these bytes. In messagesBucket, this
// is the number of the message.
func (c *pageCheck) sum(sum uint32, n int64) (_ uint32, tail uint32, err error) {
	for n > 0 {
		some, err := c.run.take(int(min(n, runBuffer)))
		if err != nil {
			return 0, 0, err
		}
		sum = crc32.Update(sum, castagnoli, some)
		for _, b := range some[max(0, len(some)-numberLength):] {
			tail = tail<<8 | uint32(b)
		}
		n -= int64(len(some))
	}
	return sum, tail, nil
}

// numbered checks n, the number of the message with the key c.last. It must follow the number of the previous message
// or, if that belongs to another session, be 1.
func (c *pageCheck) numbered(number int64, n uint32) error {
	before, follows := c.message.key, uint32(1)
	if len(c.last) < messageIDLength {
		return errors.New("the key of a message is too short")
	}
	session := c.last[:len(c.last)-messageIDLength]
	if len(before) == len(c.last) && bytes.HasPrefix(before, session) {
		follows = c.message.number + 1
	}
	known := !c.message.unknown
	c.message.key, c.message.number, c.message.unknown = append(before[:0], c.last...), n, false
	if known && n != follows || n == 0 {
		at := "before " + keyText(messagesBucket, c.last)
		return c.damage(&DamageError{Page: number, Bucket: messagesBucket, Keys: at, Fault: "messages are missing"})
	}
	return nil
}

// freelist checks the list of free pages. A file that Parley has written has no such list: bbolt finds the free pages
// when it opens the file.
func (c *pageCheck) freelist() error {
	if c.meta.freelist == noFreelist {
		return nil
	}
	h, err := c.page(c.meta.freelist)
	if err == nil && h.flags != freelistFlag {
		err = errors.New("the page is no list of free pages")
	}
	n := uint64(h.count)
	if err == nil && n == countInFirstID {
		n, err = c.pageID()
	}
	for i := uint64(0); err == nil && i < n; i++ {
		var id uint64
		if id, err = c.pageID(); err == nil && (id < metaPages || id >= c.meta.pages || c.seen[id/8]&(1<<(id%8)) != 0) {
			err = errors.New("the list of free pages has a page that is used")
		}
		if err == nil {
			c.seen[id/8] |= 1 << (id % 8)
		}
	}
	if err != nil {
		return c.damage(&DamageError{Page: int64(c.meta.freelist), Fault: err.Error()})
	}
	return nil
}

func (c *pageCheck) pageID() (uint64, error) {
	b, err := c.run.take(8)
	if err != nil {
		return 0, err
	}
	return native.Uint64(b), nil
}
