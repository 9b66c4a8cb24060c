package embedded

import (
	"bytes"
	"compress/gzip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"parley/auth"
	"parley/store/storetest"
)

func TestWriteFixture(t *testing.T) {
	if os.Getenv("PARLEY_WRITE_FIXTURE") == "" {
		t.Skip("PARLEY_WRITE_FIXTURE is not set")
	}
	synctest.Test(t, func(t *testing.T) {
		path := newPath(t)
		s := open(t, path)
		storetest.Populate(t, storetest.Backend{Conversation: s, Keys: s, Tickets: auth.NewTicketMemory()})
		must(t, s.Close())
		zip(t, path, "testdata/schema2.db.gz")
		zip(t, path+"-journal", "testdata/schema2.db-journal.gz")
		time.Sleep(time.Minute)
		s = open(t, path)
		must(t, os.WriteFile("testdata/schema2.json", storetest.Contents(t, storetest.Backend{Conversation: s, Keys: s, Tickets: auth.NewTicketMemory()}), 0o600))
	})
}

func zip(t *testing.T, from, to string) {
	content, err := os.ReadFile(from)
	must(t, err)
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, err = w.Write(content)
	must(t, err)
	must(t, w.Close())
	must(t, os.WriteFile(to, out.Bytes(), 0o644))
}
