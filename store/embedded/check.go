package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Report is the result of Check.
type Report struct {
	Pages, Free int64 // the number of pages of the file, and the number of free ones among them
	PageSize    int
	Buckets     []BucketReport // in the order of their names, after the bucket "meta"
	Damages     []*DamageError // at most reportedDamages
	More        int            // damages that are not in the list
	Journal     JournalReport
}

// BucketReport counts the records of a bucket, and the bytes of their keys and values.
type BucketReport struct {
	Name           string
	Records, Bytes int64
}

// JournalReport describes the file with the text of live replies. If it has unreadable bytes, the last entry is incomplete,
// as after a power failure, or the file is damaged.
type JournalReport struct {
	Entries           int64
	Bytes, Unreadable int64 // size of the file, and the part after the entries that cannot be read
}

// reportedDamages is the maximum number of damages in a report. More would not help to find the cause.
const reportedDamages = 100

// Check reads the whole file of a stopped store, and its journal. It changes nothing. Damage is part of the report, not
// an error. If a server has the file open, the error wraps ErrInUse. progress is called from time to time; it may be
// nil.
func Check(path string, progress func(pages, all uint64)) (report Report, err error) {
	file, err := os.Open(path)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := lockFile(file, false, lockWait); err != nil {
		return Report{}, fmt.Errorf("the store %s is %w", path, err)
	}
	info, err := file.Stat()
	if err != nil {
		return Report{}, err
	}
	meta, damage := newestMeta(file, info.Size())
	if damage != nil {
		report.Damages = []*DamageError{damage}
	} else {
		report = reportOf(meta, newPageCheck(file, meta, reportedDamages, progress).all())
	}
	for _, d := range report.Damages {
		d.File = path
	}
	report.Journal, err = checkJournal(path + journalSuffix)
	return report, err
}

func reportOf(meta metaPage, result checkResult) Report {
	report := Report{
		Pages: int64(meta.pages), Free: int64(meta.pages - metaPages - result.read), PageSize: meta.pageSize,
		Buckets: result.buckets, Damages: result.damages, More: result.more,
	}
	for _, fault := range result.contradictions() {
		report.Damages = append(report.Damages, damageIn("", "", fault))
	}
	return report
}

// contradictions compares the numbers of records in buckets that change together. Different numbers mean that the
// records of a whole page were lost, and that bbolt then wrote the pages above that page.
func (r checkResult) contradictions() (faults []string) {
	records := make(map[string]int64)
	for _, b := range r.buckets {
		records[b.Name] = b.Records
	}
	compare := func(a string, inA int64, b string, inB int64) {
		if inA != inB {
			faults = append(faults, fmt.Sprintf("records are missing: %s has %d, but %s has %d", a, inA, b, inB))
		}
	}
	for _, pair := range [][2]string{
		{sessionsBucket, usersBucket}, {sessionsBucket, expiryBucket}, {idempotencyBucket, idempotentBucket},
		{idempotencyBucket, forgetBucket}, {keysBucket, keyOrderBucket}, {keysBucket, keyEndsBucket},
	} {
		if _, ok := records[pair[1]]; ok { // an earlier version had fewer buckets
			compare("bucket "+pair[0], records[pair[0]], "bucket "+pair[1], records[pair[1]])
		}
	}
	if r.counted {
		compare("bucket "+messagesBucket, records[messagesBucket], "the sum over all sessions", r.messages)
	}
	return faults
}

// checkJournal counts the entries of a journal. A missing file is an empty journal.
func checkJournal(path string) (report JournalReport, err error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report, err
	}
	report.Bytes = int64(len(content))
	for {
		_, rest, ok := cutEntry(content)
		if !ok {
			report.Unreadable = unreadableBytes(content)
			return report, nil
		}
		report.Entries++
		content = rest
	}
}

// checkFile checks the file before bbolt opens it. It returns a *DamageError for the first damage. An empty file is a new store,
// unless it has a journal.
func (s *Store) checkFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		if journal, err := os.Stat(s.path + journalSuffix); err == nil && journal.Size() > 0 {
			return &DamageError{File: s.path, Page: noPage, Fault: "the file is empty, although it has a journal"}
		}
		return nil
	}
	meta, damage := newestMeta(file, info.Size())
	if damage == nil {
		result := newPageCheck(file, meta, 1, func(read, all uint64) {
			s.log.Info("checking the store before its start", "file", s.path, "pages", read, "of", all)
		}).all()
		if len(result.damages) > 0 {
			damage = result.damages[0]
		} else if faults := result.contradictions(); len(faults) > 0 {
			s.log.Warn("the store contradicts itself: stop the server and run parley store check", "file", s.path, "faults", faults)
		}
	}
	if damage != nil {
		damage.File = s.path
		return damage
	}
	s.newest.Store(meta.tx)
	return nil
}
