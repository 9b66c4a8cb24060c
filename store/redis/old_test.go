package redis

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/conversation"
	"parley/store/record"
	"parley/store/redis/redistest"
	"parley/store/storetest"
	"parley/stream"
)

// TestOldData_Version1_ReadAndRewrittenSame reads version1.txt, the data of a node of the first version. The data contain a live
// turn. The contents must equal version1.json, which the first version produced from the same data. Since then, two histories have
// lost their oldest message, because a message that no prompt has takes room too. Each record that is decoded and encoded again must
// have the same bytes. So during a rolling restart, older nodes can read the records of newer nodes.
//
// version1.txt holds Redis commands, one a line, with quoted words. The first line is the time at which the data were written.
func TestOldData_Version1_ReadAndRewrittenSame(t *testing.T) {
	t.Parallel()
	server := redistest.SingleWithClock(t)
	s := open(t, server.URL)
	file, err := os.Open("testdata/version1.txt")
	must(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for first := true; lines.Scan(); first = false {
		if first {
			at, err := time.Parse(time.RFC3339, lines.Text())
			must(t, err)
			server.Advance(at.Sub(server.Now()))
			continue
		}
		var words []string
		for rest := lines.Text(); rest != ""; rest = strings.TrimPrefix(rest, " ") {
			quoted, err := strconv.QuotedPrefix(rest)
			must(t, err)
			word, err := strconv.Unquote(quoted)
			must(t, err)
			words, rest = append(words, word), rest[len(quoted):]
		}
		command := make([]any, len(words))
		for i, word := range words {
			command[i] = word
		}
		must(t, s.db.Do(t.Context(), command...).Err())
		wantSameBytes(t, words)
	}
	must(t, lines.Err())
	want, err := os.ReadFile("testdata/version1.json")
	must(t, err)
	if diff := cmp.Diff(string(want), string(storetest.Contents(t, backend(s)))); diff != "" {
		t.Errorf("the data reads differently (-want +got):\n%s", diff)
	}
	sessions, err := s.Sessions(t.Context(), storetest.FixtureOwner, conversation.SessionQuery{Limit: 100})
	must(t, err)
	for i := range sessions.Sessions { // Poll returns the summary without its text
		updates, err := s.Poll(t.Context(), []conversation.Followed{{Owner: storetest.FixtureOwner, SessionID: sessions.Sessions[i].ID}})
		must(t, err)
		c, err := s.Context(t.Context(), storetest.FixtureOwner, sessions.Sessions[i].ID, 1)
		must(t, err)
		c.Summary.Text = ""
		same(t, "the summary's figures", updates[0].Summary, c.Summary)
	}
	live := sessions.Sessions[0]
	m, err := s.Message(t.Context(), storetest.FixtureOwner, live.ID, live.Head)
	must(t, err)
	if m.Status != stream.Streaming || m.Content != "so far ä" {
		t.Errorf("the live reply is %+v, want a streaming reply with the journal's text", m)
	}
}

// wantSameBytes looks for a record in a command. It decodes the record, encodes it again, and compares the bytes.
func wantSameBytes(t *testing.T, command []string) {
	t.Helper()
	var written []byte
	want := command[len(command)-1]
	switch key := command[1]; {
	case strings.Contains(key, ":m:") && command[0] == "ZADD":
		m, err := readMember("", want)
		must(t, err)
		written, want = record.AppendMessage(nil, &m), want[headLength:]
	case strings.Contains(key, ":w:") && command[0] == "ZADD":
		x, err := readIndexed(want, new(record.IndexedReader[string]))
		must(t, err)
		written, want = appendTerms(record.AppendIndexed(nil, &x), x.Terms), want[idLength+1:]
	case strings.Contains(key, ":f:") && command[0] == "HSET": // the command sets figures, last and record, in this order
		var summary conversation.Summary
		must(t, record.ReadSummary(want, &summary))
		written = record.AppendSummaryFigures(record.AppendSummaryText(nil, &summary), &summary)
	default:
		return
	}
	if string(written) != want {
		t.Errorf("%.60q is written again as %q, want %q", command[1:], written, want)
	}
}
