// Package embedded is the store of a single node. All data is in one database file and a journal beside it. It implements
// conversation.Store and auth.Store. Only one process can have the file open; another waits a second for it and gets ErrInUse.
//
// # Files
//
//   - PATH is a bbolt database: sessions, messages, summaries, usage, API keys. schema.go lists the buckets with their keys, and
//     values.go describes the values. The entry "schema" of the bucket "meta" is the version of the format. Open changes a file
//     of schema 2 to schema 3; an old value is replaced when it changes. Open refuses unknown versions, so that an older program
//     never misreads a newer file.
//   - PATH-journal has the text of live replies (journal.go). It is written at every tick (50 ms); a turn changes the database
//     only when it begins or ends. Each entry has a checksum and is appended. The journal is emptied when no reply is live, and
//     rewritten when it exceeds 8 MB.
//
// # Writes
//
// All writes go through one goroutine, the committer. It takes up to 1,024 waiting operations, runs them in one bbolt
// transaction, commits once (which syncs the file twice), and then releases their callers. This group commit shares the cost of
// the disk: on one of our disks, one writer runs 300 turns a second, and 64 writers run 7,000.
//
// Most methods that write are one operation and atomic. RemoveExpired and EndOrphans use several, so that other writes do not
// wait long. If an operation fails after it has written, the transaction is rolled back and the others of its batch run again.
// The committer also owns the queues of busy sessions, which are in memory only. Their changes take effect when the transaction
// is durable.
//
// A read uses its own bbolt transaction, a snapshot, and does not wait for the committer. It reads the journal after the
// database, and reads both again if a reply has ended in between. Test keys are an exception: their requests are counted in the
// file first (see below).
//
// # What is durable when
//
//   - Before a method returns: sessions, messages, endings, summaries, API keys, idempotency keys, usage of turns, and the count
//     of a test key's requests of the day, because that limit must survive a restart.
//   - Within a second of the request: the counts of requests in the usage report. A commit for each request would make a read
//     wait for the disk.
//   - At each tick of the journal: the text of live replies. It is then in the page cache of the operating system, which survives
//     the death of the process. It is not synced: a sync at every tick would cost more than the end of an unfinished reply is
//     worth.
//   - Never: the one-minute rate limits and the queues. A restart resets the limits and ends the requests that wait.
//
// So a process that is killed loses no write that it acknowledged, except request counts of the last second. Its live replies
// keep their text up to the last tick, and EndOrphans ends them as interrupted when the next process starts. A power failure may
// also lose the text of live replies.
//
// If a commit fails, for example on a full disk, its operations return conversation.ErrUnavailable and change nothing, and later
// writes may succeed. There are two exceptions: the sync of bbolt's meta page fails, or bbolt panics. Then it is unknown which
// state a crash would leave, and the store refuses all writes until it is opened again.
//
// # Removal and expiry
//
// A session expires 24 hours after its creation. From then on, every method behaves as if it did not exist. RemoveExpired, which
// the service calls when the next session expires, removes the session with all its data. If a turn is still live, the store
// keeps what the owner's usage needs, and nothing that identifies the session. Usage is kept for 400 days.
//
// After a removal, the bytes must be gone, but bbolt only marks pages as free. So a sweep overwrites the free pages with zeros
// (scrub.go) and removes ended replies from the journal, at most once a second. Scrubbed waits for the sweep. If the process ends
// before the sweep, the next process begins with one. The store cannot remove copies that a file system or an SSD keeps below the
// file.
package embedded
