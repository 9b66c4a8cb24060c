package embedded

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
)

// Open upgrades a file of schema 2 or 3 to schema 4: each record gets a checksum, and each message its number. The upgrade
// consists of transactions of bounded size, so its memory is bounded. The first transaction sets the schema, so that an older
// version refuses the file from then on. Each transaction stores its progress in metaBucket, so that the next Open can continue
// after a crash. The upgrade includes all records. If a record got its checksum only with its next write, damage could make a
// record look like a record without checksum.

const (
	// upgradeKey of metaBucket: the last record that has a checksum, as the name of its bucket, a zero byte and its key. It
	// exists while records without checksum are left.
	upgradeKey = "upgrade"
	// upgradeBytes is the size of the values that one transaction changes. A commit syncs twice, some milliseconds. With 4 MB,
	// most of the time goes into writing, and the memory stays small.
	upgradeBytes = 4 << 20
)

// sums says which records of a file have checksums: none, or those up to the position of an unfinished upgrade, or all.
type sums struct {
	some   bool
	bucket string // "" if all records have one
	key    string
}

// readSums decodes the records of metaBucket, which still have their checksums. It also returns the version of the
// schema; "" if the file has none.
func readSums(about map[string][]byte) (_ sums, version string, err error) {
	switch version := string(about[schemaKey]); version {
	case "", "1", "2", "3":
		return sums{}, version, nil
	}
	schema, ok := unseal(bucketSums[metaBucket], []byte(schemaKey), about[schemaKey])
	if !ok {
		return sums{}, "", errors.New("the checksum of the schema is wrong")
	}
	record, unfinished := about[upgradeKey]
	if !unfinished {
		return sums{some: true}, string(schema), nil
	}
	at, ok := unseal(bucketSums[metaBucket], []byte(upgradeKey), record)
	zero := slices.Index(at, 0)
	if !ok || zero < 0 {
		return sums{}, "", errors.New("the checksum of the upgrade's position is wrong")
	}
	return sums{some: true, bucket: string(at[:zero]), key: string(at[zero+1:])}, string(schema), nil
}

// has reports whether a record has a checksum.
func (s sums) has(bucket string, key []byte) bool {
	if !s.some || s.bucket == "" || bucket == metaBucket {
		return s.some
	}
	order := slices.Index(allBuckets(), bucket) - slices.Index(allBuckets(), s.bucket)
	return order < 0 || order == 0 && string(key) <= s.key
}

// upgrade adds checksums to a file of an earlier schema. It returns an error for an unknown schema.
func (s *Store) upgrade() error {
	var found sums
	empty := false
	if err := s.read(func(tx *bbolt.Tx) (err error) {
		empty = tx.Bucket([]byte(metaBucket)) == nil
		found, err = checkSchema(tx)
		return err
	}); err != nil || found.some && found.bucket == "" {
		return err
	}
	if !empty {
		s.log.Info("upgrading the store: each record gets a checksum", "file", s.path)
	}
	for done := false; !done; {
		if err := s.write(func(tx *bbolt.Tx) (err error) {
			done, err = upgradeSome(tx, upgradeBytes)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// checkSchema returns an error if this version cannot read the file.
func checkSchema(tx *bbolt.Tx) (sums, error) {
	about := make(map[string][]byte)
	if meta := tx.Bucket([]byte(metaBucket)); meta != nil {
		for _, key := range []string{schemaKey, upgradeKey} {
			if record := meta.Get([]byte(key)); record != nil {
				about[key] = record
			}
		}
	}
	found, version, err := readSums(about)
	if err != nil {
		return found, damageIn(metaBucket, "", err.Error())
	}
	switch version {
	case "", "2", "3", schemaVersion:
		return found, nil
	}
	return found, fmt.Errorf("its schema is %q, which this version cannot read (it reads 2, 3 and %s): use the version that wrote it",
		version, schemaVersion)
}

// upgradeSome adds checksums to records, until they have at least most bytes. done reports whether no records without checksum
// are left.
func upgradeSome(tx *bbolt.Tx, most int) (done bool, err error) {
	at, err := checkSchema(tx)
	if err != nil {
		return false, err
	}
	meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
	if err != nil {
		return false, err
	}
	about := recordsOf(meta, metaBucket)
	if err := about.put([]byte(schemaKey), []byte(schemaVersion)); err != nil {
		return false, err
	}
	if err := meta.Delete([]byte(probeKey)); err != nil {
		return false, err
	}
	left := most
	for _, name := range allBuckets()[max(0, slices.Index(allBuckets(), at.bucket)):] {
		bucket := tx.Bucket([]byte(name))
		if bucket == nil || name == metaBucket {
			continue
		}
		last := ""
		if name == at.bucket {
			last = at.key
		}
		last, more, err := upgradeBucket(recordsOf(bucket, name), last, &left)
		if err != nil {
			return false, err
		}
		if more {
			return false, about.put([]byte(upgradeKey), fmt.Appendf(nil, "%s\x00%s", name, last))
		}
	}
	return true, meta.Delete([]byte(upgradeKey))
}

// upgradeBucket adds checksums to the records after the key after, until left is used up. It subtracts their sizes from left, and
// returns the last key with a checksum. more reports whether records without checksum are left in the bucket.
func upgradeBucket(b records, after string, left *int) (last string, more bool, err error) {
	type entry struct{ key, record []byte }
	var changed []entry
	numbers := newNumbers(b, after)
	c := b.bolt.Cursor()
	key, value := c.Seek([]byte(after))
	if key != nil && string(key) == after {
		key, value = c.Next()
	}
	for ; key != nil && *left > 0; key, value = c.Next() {
		record := append(make([]byte, 0, len(value)+numberLength+sumLength), value...)
		if b.name == messagesBucket {
			record = appendNumber(record, numbers.next(key))
		}
		changed = append(changed, entry{slices.Clone(key), sealed(b.sum, key, record)})
		*left -= len(key) + len(value)
	}
	last, more = after, key != nil
	for _, e := range changed { // after the loop that reads, because a change invalidates the cursor
		if err := b.bolt.Put(e.key, e.record); err != nil {
			return "", false, err
		}
		last = string(e.key)
	}
	return last, more, nil
}
