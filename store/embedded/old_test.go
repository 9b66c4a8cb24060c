package embedded

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"parley/conversation"
	"parley/store/storetest"
	"parley/stream"
)

// schema2.db has sessions and a live turn. Its contents must equal schema2.json, which the version that wrote the file has also
// written. That version ran in a synctest bubble. The clock of each bubble starts in January 2000, so the sessions have not
// expired in this bubble.
func TestOpen_Schema2_ReadAndUpgraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		unzip(t, "testdata/schema2.db.gz", path)
		unzip(t, "testdata/schema2.db-journal.gz", path+"-journal")
		time.Sleep(time.Minute)
		s := open(t, path)
		b := storetest.Backend{Conversation: s, Keys: s}
		want, err := os.ReadFile("testdata/schema2.json")
		must(t, err)
		if diff := cmp.Diff(string(want), string(storetest.Contents(t, b))); diff != "" {
			t.Errorf("the contents of the file (-want +got):\n%s", diff)
		}
		if n, err := s.EndOrphans(t.Context(), func(text string) int { return len(text) }); n != 1 || err != nil {
			t.Errorf("EndOrphans: %d, %v", n, err)
		}
		page, err := s.Sessions(t.Context(), storetest.FixtureOwner, conversation.SessionQuery{Limit: 100})
		must(t, err)
		m, err := s.Message(t.Context(), storetest.FixtureOwner, page.Sessions[0].ID, page.Sessions[0].Head)
		must(t, err)
		if m.Status != stream.Interrupted || m.Content != "so far ä" {
			t.Errorf("the orphaned reply is %+v", m)
		}
		for _, session := range page.Sessions { // a turn replaces values of schema 2
			begun := beginTurn(t, s, session.ID, "and on")
			_, err := s.EndTurn(t.Context(), begun.Key, completed("good"), conversation.Timing{})
			must(t, err)
		}
		verify(t, s)
		after := storetest.Contents(t, b)
		closeStore(t, s)
		s = open(t, path)
		b.Conversation, b.Keys = s, s
		if diff := cmp.Diff(string(after), string(storetest.Contents(t, b))); diff != "" {
			t.Errorf("the contents after another Open (-want +got):\n%s", diff)
		}
		must(t, s.view(t.Context(), func(r *reading) error {
			if version := string(r.bucket(metaBucket).Get([]byte(schemaKey))); version != schemaVersion {
				t.Errorf("the schema is %q, want %q", version, schemaVersion)
			}
			return nil
		}))
	})
}

func unzip(t *testing.T, from, to string) {
	t.Helper()
	file, err := os.Open(filepath.FromSlash(from))
	must(t, err)
	defer file.Close()
	r, err := gzip.NewReader(file)
	must(t, err)
	content, err := io.ReadAll(r)
	must(t, err)
	must(t, os.WriteFile(to, content, 0o600))
}
