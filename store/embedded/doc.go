// Package embedded is the store of a single node: everything is in one file beside the process. It implements conversation.Store and
// auth.Store. One process has the file open at a time; another waits a second for it and gets ErrInUse.
//
// # Files
//
//   - PATH is a bbolt database: sessions, messages, summaries, usage, API keys. schema.go lists the buckets with their keys, and values.go
//     the values. The entry "schema" of the bucket "meta" is the version of the format. A file of schema 2 becomes schema 3 when it is
//     opened, and its old values are replaced as they change. A version that the program does not know is refused, so that an older
//     program never misreads a newer file.
//   - PATH-journal is the text of live replies (journal.go). It changes at every tick of the journal (50 ms), while the database changes only
//     when a turn begins or ends. Its entries have a checksum and are appended. It is emptied when no reply is live, and rewritten
//     when it exceeds 8 MB.
//
// # Writes
//
// All writes go through one goroutine, the committer. It takes the operations that wait, up to 1,024, runs them in one bbolt transaction,
// and returns to their callers after one commit, which syncs the file twice. This group commit is why many writers are not
// limited by the disk: 300 turns a second alone became 7,000 with 64 writers on one of our disks.
//
// Each method of the store is one operation and happens whole or not at all. If an operation fails after it has written, the
// transaction is rolled back and the others of its batch run again. The committer also owns the state that is in memory only: the
// queues of busy sessions. Their changes take effect when the transaction is durable.
//
// Reads are bbolt transactions of their own: snapshots that do not wait for the committer. They read the journal after the database, and
// read both again if a reply ended in between.
//
// # What is durable when
//
//   - Before a method returns: sessions, messages, endings, summaries, API keys, idempotency keys, usage of turns, and the count of a test
//     key's requests of the day, because that limit must survive a restart.
//   - Within a second of the request: the counts of requests in the usage report. A commit for each request would make a read wait for the
//     disk.
//   - At each tick of the journal: the text of live replies. It is in the page cache of the operating system then, and not synced, because a
//     sync does not help against the death of the process, and a reply that is still being written is not worth more.
//   - Never: the rate limits of a minute and the queues. A restart forgives what was used in the last minute, and ends the requests
//     that wait.
//
// So a process that is killed loses nothing that it acknowledged. Its live replies keep their text up to the last tick, and EndOrphans ends them
// as interrupted when the next process starts. A machine that loses power may lose the text of live replies as well, but nothing
// that was synced.
//
// If a write fails, as on a full disk, its operations fail with conversation.ErrUnavailable, nothing has changed, and later writes may
// succeed. There are two exceptions: the sync of bbolt's meta page failed, or bbolt panicked. Then it is unknown what a crash would fall back
// to, and the store refuses all writes until it is opened again.
//
// # Removal and expiry
//
// A session expires 24 hours after its creation. From that moment on every method reports it as not found; RemoveExpired, which
// the service calls when the next session is due, removes it with everything that belongs to it. A turn that was live then leaves behind what
// the owner's usage needs, and nothing that identifies the session. Usage is kept for 400 days.
//
// Removal must mean that the bytes are gone, but bbolt only marks pages as free. So after a removal a sweep overwrites the free pages with zeros
// (scrub.go), at most once a second, and drops ended replies from the journal. Scrubbed waits for it. If the process ends
// before the sweep, the next one begins with a sweep. Copies that a file system or an SSD makes below the file are out of reach.
package embedded
