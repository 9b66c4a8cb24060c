// Package embedded is the store of a single node. All data is in one database file and a journal beside it. [Store] implements
// conversation.Store and auth.Store. Only one process can have the file open. Another process waits a second for the file and
// then gets ErrInUse.
//
// # Files
//
//   - PATH is a bbolt database: sessions, messages, summaries, usage, API keys. schema.go lists the buckets with their keys, and
//     values.go describes the values. The entry "schema" of the bucket "meta" is the version of the format. Open changes the
//     version of a file from 2 to 3. A value of schema 2 is rewritten in the new format when it changes. Open refuses unknown
//     versions, so that an older program never misreads a newer file.
//   - PATH-journal has the text of live replies (journal.go). At every tick (50 ms), the store appends an entry with a checksum.
//     A turn changes the database only when it begins or ends. The store empties the journal when no reply is live, and rewrites
//     the journal when its size exceeds 8 MB.
//   - Both files have blocks that are allocated behind their used part: the reserve (reserve.go).
//
// # Writes
//
// All writes go through one goroutine, the committer. It takes up to 1,024 waiting operations, runs them in one bbolt
// transaction, commits once (which syncs the file twice), and then releases their callers. This group commit shares the cost of
// the disk. On our disk, one writer runs 300 turns a second, and 64 writers together run 7,000.
//
// Most methods that write submit one operation, which is atomic. RemoveExpired and EndOrphans submit several, so that other
// writes do not wait long. If an operation fails after it has written, the transaction is rolled back, and the other operations
// of its batch run again. The committer also owns the queues of busy sessions, which are in memory only. A change to a queue
// takes effect when the transaction is durable.
//
// A read uses its own bbolt transaction, a snapshot, and does not wait for the committer. It reads the journal after the
// database. If a reply has ended in between, the read starts again. There are two exceptions. A request with a test key is
// counted in the file first (see below). A usage report waits until the pending requests are counted in the file.
//
// # What is durable when
//
//   - Before a method returns: sessions, messages, endings, summaries, API keys, idempotency keys, usage of turns, and the daily
//     count of requests with an account's test keys. The daily limit must survive a restart.
//   - Within a second of the request: the counts of requests in the usage report. A commit for each request would make a read
//     wait for the disk.
//   - At each tick of the journal: the text of live replies. Then the text is in the page cache of the operating system, which
//     survives the death of the process. The text is not synced, because a sync at every tick would cost too much for unfinished
//     replies.
//   - Never: the one-minute rate limits and the queues. A restart resets the limits and ends the requests that wait.
//
// So a process that is killed loses no write that it acknowledged, except request counts of the last second. Its live replies
// keep their text up to the last journal write, and EndOrphans ends them as interrupted when the next process starts. A power
// failure may also lose the text of live replies.
//
// # Faults
//
// health.go lists the faults that a store can have, and has their present causes. While the store has a fault, Ping returns it,
// and the log has a line when it begins and ends.
//
//	fault         writes                                     ends
//	broken        refused                                    when the file is opened again
//	moved         refused                                    when the files are at their paths again (watch.go)
//	full          refused, if they add data (reserve.go)     when the reserve is made again, or pages are free
//	failing       tried                                      at the next commit that succeeds; watch tries every 2 s
//	unjournalled  tried                                      at the next write of the journal that succeeds
//
// If a commit fails, its operations return the fault and change nothing. If the disk has become full, the operations of the batch
// run again, and only those that add data fail. There are two cases in which the store is broken: the sync of bbolt's meta page
// fails, or bbolt panics. Then it is unknown which state a crash would leave.
//
// LeaveQueue always works, because it changes only memory.
//
// # Removal and expiry
//
// A session expires 24 hours after its creation. From then on, every method behaves as if the session did not exist. The
// service calls RemoveExpired when the next session expires, and RemoveExpired removes the session with all its data. If a turn
// is still live, the store keeps the figures that the owner's usage needs, and nothing that identifies the session. Usage is
// kept for 400 days. A removal also subtracts the session's bytes from the count for the quota storedBytes (stored.go).
//
// After a removal, the bytes must be gone, but bbolt only marks pages as free. So a sweep overwrites the free pages with zeros
// (scrub.go) and removes ended replies from the journal, at most once a second. Scrubbed waits for the sweep. If the process ends
// before the sweep, the next process begins with a sweep. The store cannot remove copies that a file system or an SSD keeps below
// the file.
package embedded
