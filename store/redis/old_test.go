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
	"parley/store/redis/redistest"
	"parley/store/storetest"
	"parley/stream"
)

// TestOldData_Version1 reads what a node of an earlier version has written, with a turn that is live, and compares it with what
// that version read. The file holds Redis commands, a line each, with quoted arguments; the first line is the time at which they
// were dumped.
func TestOldData_Version1(t *testing.T) {
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
		var command []any
		for rest := lines.Text(); rest != ""; rest = strings.TrimPrefix(rest, " ") {
			quoted, err := strconv.QuotedPrefix(rest)
			must(t, err)
			word, err := strconv.Unquote(quoted)
			must(t, err)
			command, rest = append(command, word), rest[len(quoted):]
		}
		must(t, s.db.Do(t.Context(), command...).Err())
	}
	must(t, lines.Err())
	want, err := os.ReadFile("testdata/version1.json")
	must(t, err)
	if diff := cmp.Diff(string(want), string(storetest.Contents(t, backend(s)))); diff != "" {
		t.Errorf("the data reads differently (-want +got):\n%s", diff)
	}
	sessions, err := s.Sessions(t.Context(), storetest.FixtureOwner, conversation.SessionQuery{Limit: 100})
	must(t, err)
	for i := range sessions.Sessions { // a poll reads the figures of a summary alone
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
		t.Errorf("the reply that was live is %+v", m)
	}
}
