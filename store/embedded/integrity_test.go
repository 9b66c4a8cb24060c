package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"parley/conversation"
)

// conversed creates a session and runs turns in it. It returns the session and its messages.
func conversed(t *testing.T, s *Store, turns int) (conversation.Session, []conversation.Message) {
	t.Helper()
	session := newSession(t, s)
	for i := range turns {
		begun := beginTurn(t, s, session.ID, fmt.Sprintf("secret question %d", i))
		_, err := s.EndTurn(t.Context(), begun.Key, completed(fmt.Sprintf("secret answer %d", i)), conversation.Timing{})
		must(t, err)
	}
	page, err := s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Ascending: true, Limit: 1000})
	must(t, err)
	return page.Session, page.Messages
}

// tamper changes a bucket without updating the checksums.
func tamper(t *testing.T, s *Store, bucket string, change func(*bbolt.Bucket) error) {
	t.Helper()
	must(t, s.write(func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte(bucket))) }))
}

func wantDamage(t *testing.T, what string, err error) {
	t.Helper()
	d, ok := errors.AsType[*DamageError](err)
	if !ok || !errors.Is(err, conversation.ErrStoreDamaged) || !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("%s: error %v, want a *DamageError", what, err)
		return
	}
	if d.File == "" || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "parley store check") {
		t.Errorf("%s: the error names no file or no way out, or has text of a message: %v", what, err)
	}
}

func TestRead_ValueOfAnotherKey_Unavailable(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	session, messages := conversed(t, s, 3)
	other, _ := conversed(t, s, 3)
	at := ref{somebody, session.ID}
	tamper(t, s, messagesBucket, func(b *bbolt.Bucket) error { // both values are intact
		first, second := messageKey(at, messages[1].ID), messageKey(at, messages[3].ID)
		value := bytes.Clone(b.Get(first))
		return errors.Join(b.Put(first, bytes.Clone(b.Get(second))), b.Put(second, value))
	})
	_, err := s.Message(t.Context(), somebody, session.ID, messages[3].ID)
	wantDamage(t, "Message", err)
	if !strings.Contains(err.Error(), session.ID+" "+messages[3].ID) {
		t.Errorf("the error does not name the message: %v", err)
	}
	_, err = s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Limit: 10})
	wantDamage(t, "Messages", err)
	wantDamage(t, "Ping", s.Ping(t.Context()))
	_, err = s.Message(t.Context(), somebody, session.ID, messages[0].ID)
	must(t, err)
	begun := beginTurn(t, s, other.ID, "other sessions still work")
	_, err = s.EndTurn(t.Context(), begun.Key, completed("yes"), conversation.Timing{})
	must(t, err)

	_, err = s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "hello")) // reads the history
	wantDamage(t, "BeginTurn", err)
	_, err = s.BeginTurn(t.Context(), somebody, newTurn(other.ID, "hello"))
	wantDamage(t, "BeginTurn after a damage in a write", err)
	_, err = s.Messages(t.Context(), somebody, other.ID, conversation.MessageQuery{Limit: 10})
	must(t, err)
}

func TestMessages_LostRecord_Unavailable(t *testing.T) {
	t.Parallel()
	for lost, name := range map[int]string{0: "first", 5: "in the middle", 11: "last"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newPath(t))
			session, messages := conversed(t, s, 6)
			newSession(t, s)
			tamper(t, s, messagesBucket, func(b *bbolt.Bucket) error {
				return b.Delete(messageKey(ref{somebody, session.ID}, messages[lost].ID))
			})
			_, err := s.Message(t.Context(), somebody, session.ID, messages[lost].ID)
			wantDamage(t, "Message", err)
			for _, ascending := range []bool{false, true} {
				for from := range messages {
					for _, inclusive := range []bool{false, true} {
						query := conversation.MessageQuery{From: messages[from].ID, Ascending: ascending, Inclusive: inclusive, Limit: 100}
						reaches := ascending && lost > from || !ascending && lost < from || inclusive && lost == from
						if _, err := s.Messages(t.Context(), somebody, session.ID, query); reaches {
							wantDamage(t, fmt.Sprintf("Messages %+v", query), err)
						}
					}
				}
				_, err := s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Ascending: ascending, Limit: 100})
				wantDamage(t, "Messages", err)
			}
			_, err = s.Context(t.Context(), somebody, session.ID, 10)
			wantDamage(t, "Context", err)
			_, err = s.DeleteSession(t.Context(), somebody, session.ID)
			wantDamage(t, "DeleteSession, which could not remove the lost message", err)
		})
	}
}

// overwrite writes zeros over pages of the file, as another program could.
func overwrite(t *testing.T, path string, pages ...int) {
	t.Helper()
	for _, page := range pages {
		must(t, writeAt(path, make([]byte, os.Getpagesize()), page*os.Getpagesize()))
	}
}

// If both meta pages were damaged and begin did not check them, bbolt would panic with its locks held, and the second
// call would wait for ever. If only the newest meta page were damaged, bbolt would go back one transaction.
func TestMetaPages_DamagedWhileRunning_Unavailable(t *testing.T) {
	t.Parallel()
	for name, both := range map[string]bool{"both": true, "only the newest": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s := open(t, path)
			session, _ := conversed(t, s, 1)
			must(t, s.Scrubbed(t.Context()))
			overwrite(t, path, int(s.newest.Load()%2))
			if both {
				overwrite(t, path, 0, 1)
			}
			for range 2 {
				_, err := s.Session(t.Context(), somebody, session.ID)
				wantDamage(t, "Session", err)
				_, err = s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "hello"))
				wantDamage(t, "BeginTurn", err)
			}
			must(t, s.Close())
			_, err := Open(path, Options{})
			wantDamage(t, "Open", err)
		})
	}
}

func TestOpen_OneMetaPageDamaged_Refused(t *testing.T) {
	t.Parallel()
	for page := range metaPages {
		path := newPath(t)
		s := open(t, path)
		conversed(t, s, 1)
		closeStore(t, s)
		overwrite(t, path, page)
		_, err := Open(path, Options{})
		wantDamage(t, fmt.Sprintf("Open with meta page %d damaged", page), err)
	}
}

func TestOpen_EmptyFileWithJournal_Refused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "some text")
	closeStore(t, s)
	must(t, os.Truncate(path, 0))
	_, err := Open(path, Options{})
	wantDamage(t, "Open", err)
}

// The names of buckets have no checksum. Without the bucket "meta", a store would look like a file of an earlier version.
func TestOpen_BucketRenamed_Refused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{metaBucket, sessionsBucket} {
		path := newPath(t)
		s := open(t, path)
		conversed(t, s, 1)
		closeStore(t, s)
		content, err := os.ReadFile(path)
		must(t, err)
		renamed := name[:len(name)-1] + "z"
		must(t, os.WriteFile(path, bytes.ReplaceAll(content, []byte(name), []byte(renamed)), 0o600))
		_, err = Open(path, Options{})
		wantDamage(t, "Open with the bucket "+renamed, err)
	}
}

func TestOpen_DamagedJournal_Logged(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "some secret text")
	journalText(t, s, begun.Key, 16, " and more")
	closeStore(t, s)
	must(t, writeAt(path+journalSuffix, []byte{0xFF}, int(fileSize(t, path+journalSuffix))-1))
	var log bytes.Buffer
	s, err := Open(path, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), noSync: true})
	must(t, err)
	defer closeStore(t, s)
	if text, _ := s.journal.text(begun.Reply.ID); text != "some secret text" {
		t.Errorf("the text is %q", text)
	}
	if !strings.Contains(log.String(), path+journalSuffix) || strings.Contains(log.String(), "secret") {
		t.Errorf("the log does not name the journal, or has text of a message: %s", &log)
	}
}

// downgrade changes a closed store to schema 3: no checksums and no numbers.
func downgrade(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			plain := make(map[string][]byte)
			err := b.ForEach(func(key, record []byte) error {
				n := len(record) - sumLength
				if string(name) == messagesBucket {
					n -= numberLength
				}
				plain[string(key)] = bytes.Clone(record[:n])
				return nil
			})
			if string(name) == metaBucket {
				plain[schemaKey] = []byte("3")
			}
			for key, value := range plain {
				err = errors.Join(err, b.Put([]byte(key), value))
			}
			return err
		})
	}))
	must(t, db.Close())
}

// Each step adds checksums to a part of the records. The process may die after any step, so the next Open must continue
// there.
func TestUpgrade_Interrupted_NextOpenContinues(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	first, messages := conversed(t, s, 10)
	second, others := conversed(t, s, 10)
	closeStore(t, s)
	downgrade(t, path)
	steps := 0
	for done := false; !done; steps++ {
		report, err := Check(path, nil)
		must(t, err)
		if len(report.Damages) > 0 {
			t.Fatalf("after %d steps: %v", steps, report.Damages[0])
		}
		if steps%7 == 0 {
			again := newPath(t)
			copyStore(path, again)
			s := open(t, again)
			for id, want := range map[string][]conversation.Message{first.ID: messages, second.ID: others} {
				page, err := s.Messages(t.Context(), somebody, id, conversation.MessageQuery{Ascending: true, Limit: 100})
				must(t, err)
				if diff := cmp.Diff(want, page.Messages); diff != "" {
					t.Errorf("after %d steps (-want +got):\n%s", steps, diff)
				}
			}
			verify(t, s)
			closeStore(t, s)
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
		must(t, err)
		must(t, db.Update(func(tx *bbolt.Tx) (err error) {
			done, err = upgradeSome(tx, 300)
			return err
		}))
		must(t, db.Close())
	}
	if steps < 10 {
		t.Errorf("the upgrade took %d steps, want at least 10", steps)
	}
	verify(t, open(t, path))
}

func TestCheck_IntactStore_FiguresAndFileUnchanged(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	_, messages := conversed(t, s, 50)
	large := beginTurn(t, s, newSession(t, s).ID, strings.Repeat("large ", 1_000_000)) // its value is larger than the check's buffer
	_, err := Check(path, nil)
	if !errors.Is(err, ErrInUse) {
		t.Errorf("Check of an open store: error %v, want ErrInUse", err)
	}
	journalText(t, s, large.Key, 0, "some text")
	closeStore(t, s)
	before, err := os.ReadFile(path)
	must(t, err)
	report, err := Check(path, nil)
	must(t, err)
	if len(report.Damages) > 0 {
		t.Fatalf("an undamaged store: %v", report.Damages[0])
	}
	records := make(map[string]int64)
	for _, b := range report.Buckets {
		records[b.Name] = b.Records
	}
	if records[messagesBucket] != int64(len(messages)+2) || records[sessionsBucket] != 2 || report.Journal.Entries != 1 {
		t.Errorf("the report is %+v", report)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the check changed the file (error %v)", err)
	}
}

// Other programs for bbolt write a list of free pages into the file. Such a file is valid too.
func TestCheck_SyncedFreelist_Valid(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	session, _ := conversed(t, s, 50)
	_, err := s.DeleteSession(t.Context(), somebody, session.ID)
	must(t, err)
	closeStore(t, s)
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	report, err := Check(path, nil)
	must(t, err)
	if len(report.Damages) > 0 {
		t.Errorf("%v", report.Damages[0])
	}
	closeStore(t, open(t, path))
}

// The check must report each damage of a page that is in use, and must not panic.
func TestCheck_RandomDamages_Reported(t *testing.T) {
	t.Parallel()
	template, path := newPath(t), newPath(t)
	makeDamageTemplate(t, template)
	missed := 0
	for seed := range 100 {
		copyStore(template, path)
		how, err := damageFile(rand.New(rand.NewPCG(uint64(seed), 7)), path)
		must(t, err)
		report, err := Check(path, nil)
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		for _, d := range report.Damages {
			if strings.Contains(d.Fault, "the check failed") || strings.Contains(d.Error(), "the text of") {
				t.Errorf("%s: %v", how, d)
			}
		}
		if len(report.Damages) == 0 {
			missed++
		}
	}
	if missed > 30 { // the rest hit free pages and unused parts of pages
		t.Errorf("%d of 100 damages were not reported", missed)
	}
}

// A commit must not make the file longer again: the lost pages would become zeros.
func TestWrite_FileTruncatedWhileRunning_Refused(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]int64{"unused page lost": -1, "all pages lost": metaPages} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s := open(t, path)
			session, _ := conversed(t, s, 3)
			must(t, s.Scrubbed(t.Context()))
			size := left * int64(os.Getpagesize())
			if left < 0 {
				size += fileSize(t, path)
			}
			must(t, os.Truncate(path, size))
			_, err := s.BeginTurn(t.Context(), somebody, newTurn(session.ID, "hello"))
			wantDamage(t, "BeginTurn", err)
			_, err = s.Messages(t.Context(), somebody, session.ID, conversation.MessageQuery{Limit: 10})
			if left > 0 {
				wantDamage(t, "Messages", err)
			} else {
				must(t, err)
			}
			s.scrub.want()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_ = s.Scrubbed(ctx) // it cannot sweep, but must not end the process
		})
	}
}

// A batch removes the sessions before and after a session, and then reads that session for a turn. The removals leave
// empty pages around the history of that session. At an empty page, bbolt's Prev returns nothing.
func TestBeginTurn_EmptyPageBefore_GetsHistory(t *testing.T) {
	t.Parallel()
	for name, turns := range map[string]int{"records before the empty page": 20, "bucket begins with the empty page": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantHistory(t, turns)
		})
	}
}

func wantHistory(t *testing.T, turnsBefore int) {
	t.Helper()
	s := open(t, newPath(t))
	if turnsBefore > 0 {
		conversed(t, s, turnsBefore)
	}
	gone, _ := conversed(t, s, 100)
	next, messages := conversed(t, s, 3)
	after, _ := conversed(t, s, 100)
	conversed(t, s, 3)
	must(t, s.submit(t.Context(), func(w *writing) error {
		for _, removed := range []conversation.Session{gone, after} {
			if err := w.removeSession(ref{somebody, removed.ID}, &removed); err != nil {
				return err
			}
		}
		at := ref{somebody, next.ID}
		found, err := w.context(at, &next, 10)
		if len(found.History) != len(messages) {
			t.Errorf("the history has %d of %d messages", len(found.History), len(messages))
		}
		_, err2 := w.bytesOf(at, len(messages)) // reads the messages in the other direction
		return errors.Join(err, err2)
	}))
	verify(t, s)
}

// A batch removes the last two sessions of the store. Their messages fill several pages. While these pages are empty,
// bbolt's Last never returns.
func TestRemoveSession_LastOfStore_DoesNotHang(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t))
	first, _ := conversed(t, s, 100)
	second, _ := conversed(t, s, 100)
	done := make(chan error, 1)
	go func() {
		done <- s.submit(t.Context(), func(w *writing) error {
			for _, removed := range []conversation.Session{first, second} {
				at := ref{somebody, removed.ID}
				if err := w.removeSession(at, &removed); err != nil {
					return err
				}
				if key, _, ok := w.span(messagesBucket, nil).from(""); ok && removed.ID == second.ID {
					return fmt.Errorf("the message %q is left", key)
				}
			}
			return nil
		})
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(time.Minute):
		fmt.Fprintln(os.Stderr, t.Name()+": the batch has not ended after a minute")
		os.Exit(1) // a failed test would close the store, and so wait for the batch
	}
	verify(t, s)
}
