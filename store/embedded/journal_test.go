package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"parley/conversation"
	"parley/stream"
)

func keyOf(n int) conversation.TurnKey {
	return conversation.TurnKey{
		Owner: somebody, SessionID: fmt.Sprintf("session_%016d", n), ReplyID: fmt.Sprintf("msg_%016d", n), Fence: 1,
	}
}

type segment = stream.Segment[conversation.TurnKey]

func of(key conversation.TurnKey, offset int, text string) segment {
	return segment{Key: key, Offset: offset, Text: []byte(text)}
}

func newJournal(t testing.TB, path string, live ...conversation.TurnKey) *journal {
	t.Helper()
	j, err := openJournal(path, live, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { _ = j.close() })
	return j
}

func fileSize(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

// smallJournal returns the content of a journal with two replies, and the texts of these replies by id.
func smallJournal(t *testing.T) ([]byte, map[string]string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j := newJournal(t, path, keyOf(1), keyOf(2))
	must(t, j.write([]segment{of(keyOf(1), 0, "zwölf "), of(keyOf(2), 0, "\xF0\x9F")}))
	must(t, j.write([]segment{of(keyOf(2), 2, "\x98\x80 and on")}))
	must(t, j.write([]segment{of(keyOf(1), 7, "drei"), of(keyOf(1), 11, "ßig")}))
	content, err := os.ReadFile(path)
	must(t, err)
	return content, map[string]string{keyOf(1).ReplyID: "zwölf dreißig", keyOf(2).ReplyID: "\U0001F600 and on"}
}

// reopened opens a journal with this content. It checks that the text of each reply is a prefix of the text in want. It also
// checks that the rest of each text can be written and read. It returns the total length of the prefixes.
func reopened(t *testing.T, content []byte, want map[string]string) int {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	must(t, os.WriteFile(path, content, 0o600))
	j := newJournal(t, path, keyOf(1), keyOf(2))
	total := 0
	for id, whole := range want {
		text, live := j.text(id)
		if !live || !strings.HasPrefix(whole, text) || !utf8.ValidString(text) {
			t.Errorf("the text is %q, want a prefix of %q", text, whole)
		}
		total += len(text)
	}
	// It must be possible to write the rest of each text.
	for i, id := range []string{keyOf(1).ReplyID, keyOf(2).ReplyID} {
		text, _ := j.text(id)
		must(t, j.write([]segment{of(keyOf(i+1), len(text), want[id][len(text):])}))
	}
	must(t, j.close())
	j = newJournal(t, path, keyOf(1), keyOf(2))
	for id, whole := range want {
		if text, _ := j.text(id); text != whole {
			t.Errorf("after the rest was written, the text is %q, want %q", text, whole)
		}
	}
	return total
}

func TestJournal_CutAnywhere_KeepsPrefix(t *testing.T) {
	t.Parallel()
	content, want := smallJournal(t)
	before := 0
	for cut := range len(content) + 1 {
		total := reopened(t, content[:cut], want)
		if total < before {
			t.Errorf("cut at %d, the journal has less text than cut at %d", cut, cut-1)
		}
		before = total
	}
	all := 0
	for _, text := range want {
		all += len(text)
	}
	if before != all {
		t.Errorf("the whole journal has %d bytes of text, want %d", before, all)
	}
}

func TestJournal_CorruptedAnywhere_KeepsPrefix(t *testing.T) {
	t.Parallel()
	content, want := smallJournal(t)
	for i := range content {
		for _, flip := range []byte{1, 0x80, 0xFF} {
			content[i] ^= flip
			reopened(t, content, want)
			content[i] ^= flip
		}
	}
	reopened(t, append(content, "garbage at the end"...), want)
	reopened(t, append(content, make([]byte, 4096)...), want)
}

func TestJournal_SegmentAfterGap_Ignored(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := newJournal(t, path, keyOf(1))
	must(t, j.write([]segment{of(keyOf(1), 0, "one"), of(keyOf(1), 4, "three"), of(keyOf(1), -1, "minus")}))
	var entry []byte // its segment begins after a gap, as if the previous entry were lost
	entry = appendSegment(append(entry, make([]byte, entryHeader)...), keyOf(1).ReplyID, 9, []byte("far"))
	j.seal(entry)
	_, err := j.file.WriteAt(entry, j.size)
	must(t, err)
	must(t, j.close())
	j = newJournal(t, path, keyOf(1))
	if text, _ := j.text(keyOf(1).ReplyID); text != "one" {
		t.Errorf("the text is %q", text)
	}
}

func TestJournal_LastLiveReplyEnds_FileEmptied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := newJournal(t, path, keyOf(1))
	j.begin(keyOf(2))
	must(t, j.write([]segment{of(keyOf(1), 0, "one"), of(keyOf(2), 0, "two")}))
	j.end(keyOf(1).ReplyID)
	if fileSize(t, path) == 0 {
		t.Error("the journal is empty while a reply is live")
	}
	j.end(keyOf(2).ReplyID)
	j.end(keyOf(2).ReplyID)
	content, err := os.ReadFile(path)
	must(t, err)
	if strings.Trim(string(content), "\x00") != "" {
		t.Errorf("the journal contains %q", content)
	}
	j.begin(keyOf(3))
	must(t, j.write([]segment{of(keyOf(3), 0, "three")}))
	must(t, j.close())
	if text, _ := newJournal(t, path, keyOf(3)).text(keyOf(3).ReplyID); text != "three" {
		t.Errorf("the text is %q", text)
	}
}

func TestJournal_EmptiedOrIncomplete_OnlyIncompleteReported(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path)
	begun := beginTurn(t, s, newSession(t, s).ID, "hello")
	journalText(t, s, begun.Key, 0, "good")
	_, err := s.EndTurn(t.Context(), begun.Key, completed("good day"), conversation.Timing{})
	must(t, err)
	closeStore(t, s)
	journalPath := path + journalSuffix
	if fileSize(t, journalPath) == 0 {
		t.Fatal("the file has no zeros")
	}
	expect := func(unreadable int64) {
		t.Helper()
		report, err := checkJournal(journalPath)
		must(t, err)
		if report.Unreadable != unreadable {
			t.Errorf("the check reports %+v, want %d unreadable bytes", report, unreadable)
		}
		log := new(logLines)
		j, err := openJournal(journalPath, nil, slog.New(slog.NewTextHandler(log, nil)))
		must(t, err)
		must(t, j.close())
		if warned := log.count("level=WARN") > 0; warned != (unreadable > 0) {
			t.Errorf("the log of a journal with %d unreadable bytes is %q", unreadable, log.text.String())
		}
	}
	expect(0)
	must(t, os.WriteFile(journalPath, []byte("\x00\x00\x00\x09 incomplete"), 0o600))
	expect(int64(len("\x00\x00\x00\x09 incomplete")))
}

func TestJournal_FileOverLimit_RewrittenWithoutEndedText(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := newJournal(t, path, keyOf(0))
	must(t, j.write([]segment{of(keyOf(0), 0, "kept all along")}))
	piece := strings.Repeat("x", 1<<20)
	for n := 1; n <= 40; n++ { // replies begin and end
		j.begin(keyOf(n))
		must(t, j.write([]segment{of(keyOf(n), 0, piece)}))
		j.end(keyOf(n).ReplyID)
		if size := fileSize(t, path); size > journalLimit+2<<20 || size != j.size {
			t.Fatalf("the journal has %d bytes, want %d", size, j.size)
		}
	}
	j.begin(keyOf(99))
	for n := range 20 { // the text of one live reply exceeds the limit
		must(t, j.write([]segment{of(keyOf(99), n<<20, piece)}))
	}
	if j.limit < 2*journalLimit || j.size > j.limit {
		t.Errorf("the journal has %d bytes, with a limit of %d", j.size, j.limit)
	}
	must(t, j.close())
	j = newJournal(t, path, keyOf(0), keyOf(99))
	if text, _ := j.text(keyOf(0).ReplyID); text != "kept all along" {
		t.Errorf("the text is %q", text)
	}
	if text, _ := j.text(keyOf(99).ReplyID); len(text) != 20<<20 {
		t.Errorf("the long text has %d bytes", len(text))
	}
}

func TestJournal_FailedWrite_KeepsEarlierText(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := newJournal(t, path, keyOf(1))
	must(t, j.write([]segment{of(keyOf(1), 0, "one")}))
	whole := j.file
	readOnly, err := os.Open(path)
	must(t, err)
	j.file = readOnly
	err = j.write([]segment{of(keyOf(1), 3, " two"), of(keyOf(1), 7, " three")})
	if !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if text, _ := j.text(keyOf(1).ReplyID); text != "one" {
		t.Errorf("the text is %q", text)
	}
	must(t, readOnly.Close())
	j.file = whole
	_, err = whole.WriteAt([]byte("half an entry that a full disk left behind"), j.size)
	must(t, err)
	must(t, j.write([]segment{of(keyOf(1), 3, " two")}))
	must(t, j.close())
	if text, _ := newJournal(t, path, keyOf(1)).text(keyOf(1).ReplyID); text != "one two" {
		t.Errorf("the text is %q", text)
	}
}

// The test writes segments that repeat and overlap. Between writes, it compacts the journal or opens it again.
func TestJournal_RandomSegments_TextComplete(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "journal")
		live := []conversation.TurnKey{keyOf(0), keyOf(1), keyOf(2)}
		want := make([]string, len(live))
		j, err := openJournal(path, live, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		check := func() {
			for i, key := range live {
				if text, ok := j.text(key.ReplyID); text != want[i] || !ok {
					t.Fatalf("reply %d is %q, want %q", i, text, want[i])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				var batch []segment
				for range rapid.IntRange(0, 4).Draw(t, "segments") {
					i := rapid.IntRange(0, len(live)-1).Draw(t, "reply")
					from := rapid.IntRange(0, len(want[i])).Draw(t, "from")
					text := want[i][from:] + rapid.StringOfN(rapid.RuneFrom([]rune("aß€😀")), 0, 5, -1).Draw(t, "text")
					batch = append(batch, of(live[i], from, text))
					want[i] = want[i][:from] + text
				}
				if err := j.write(batch); err != nil {
					t.Fatal(err)
				}
			},
			"compact": func(t *rapid.T) {
				j.dead = true
				if err := j.clean(); err != nil {
					t.Fatal(err)
				}
			},
			"reopen": func(t *rapid.T) {
				if err := j.close(); err != nil {
					t.Fatal(err)
				}
				if j, err = openJournal(path, live, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
			},
			"": func(*rapid.T) { check() },
		})
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
	})
}
