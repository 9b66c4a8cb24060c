// Package embedded is the store of a single node. All data is in one database file and a journal beside it. [Store] implements
// conversation.Store and auth.Store. Only one process can have the file open. Another process waits a second for the file and
// then gets ErrInUse.
//
// # Files
//
//   - PATH is a bbolt database: sessions, messages, summaries, usage, API keys. schema.go lists the buckets with their keys, and
//     values.go describes the values. The entry "schema" of the bucket "meta" is the version of the format. Open changes the
//     version of a file from 2 or 3 to 4 (upgrade.go). A value of schema 2 is rewritten in the new format when it changes. Open
//     refuses unknown versions, so that an older program never misreads a newer file.
//   - PATH-journal has the text of live replies (journal.go). At every tick (50 ms), the store appends an entry with a checksum.
//     A turn changes the database only when it begins or ends. The store empties the journal when no reply is live, and rewrites
//     the journal when its size exceeds 8 MB.
//   - Both files have blocks that are allocated behind their used part: the reserve (reserve.go).
//
// # Writes
//
// All writes go through one goroutine, the committer. It yields until no more callers join the queue, takes up to 1,024 waiting
// operations, runs them in one bbolt transaction, commits once (which syncs the file twice), and then releases their callers.
// This group commit shares the cost of the disk. On our disk, one writer runs 300 turns a second, and 64 writers together run
// 7,000.
//
// Most methods that write submit one operation, which is atomic. RemoveExpired and EndOrphans submit several, so that other
// writes do not wait long. If an operation fails after it has written, the transaction is rolled back, and the other operations
// of its batch run again. Just before the commit, the committer reports the turns that begin (reportPrepared), so that the models
// work during the commit. The committer also owns the queues of busy sessions, which are in memory only. A change to a queue
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
// health.go lists the faults that a store can have, and holds their current causes. While the store has a fault, Ping
// returns this fault. The log has a line when a fault begins, and another line when it ends.
//
//	fault         writes                                     ends
//	broken        refused                                    when the file is opened again
//	damaged       tried; see below                           when the file is opened again
//	moved         refused                                    when the files are at their paths again (watch.go)
//	full          refused, if they add data (reserve.go)     when the reserve is made again, or pages are free
//	failing       tried                                      at the next commit that succeeds; watch tries every 2 s
//	unjournalled  tried                                      at the next write of the journal that succeeds
//
// If a commit fails, its operations return the fault and change nothing. If the disk has become full, the operations of the batch
// run again, and only those that add data fail. There are two cases in which the store is broken: the sync of bbolt's meta page
// fails, or a write finds damage (see below). Then it is unknown which state a crash would leave.
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
//
// # Damage
//
// A disk, a file system or another program may change the file. Then no method returns altered text, and no history is shortened:
// the method returns a [DamageError], which wraps conversation.ErrStoreDamaged.
//
//   - Each record has a checksum of its bucket, key and value (checksum.go). Each read verifies it. If a key is
//     missing, the two records beside its place must be intact.
//   - The messages of a session are numbered (number.go), so a reader notices that messages are missing.
//   - Open checks all pages before bbolt sees them (pages.go), and refuses a damaged file. The check takes about 0.5 s
//     of CPU time for each gigabyte; bbolt's own scan takes 0.35 s. Open also refuses a file if one of its two meta
//     pages is invalid. bbolt would use the other one, and so could take back the last transaction, although it was
//     acknowledged. An interrupted commit does not make a meta page invalid: its content is within one sector, and
//     disks write a sector as a whole.
//   - While the store runs, panics of bbolt and faults of the memory map become a DamageError (transaction.go). A read that finds
//     damage fails, and other reads and writes go on. If a write finds damage, the store refuses all later writes, because bbolt
//     could copy the damage into intact pages. Ping fails after any damage.
//   - Check does the same as Open for a stopped store, and reports all damages. Both check the journal, which has checksums of
//     its own. Open only logs a damaged journal: its text belongs to replies that are interrupted anyway.
//
// The table has the outcomes of TestDamage_AnyPage_RefusedOrUnavailable with 300 seeds for each column. A seed fills a
// page with random bytes, zeros or the bytes of another page, flips 1 or 8 bits, or truncates the file. The columns
// "before" are of commit 67a6719, which had no checks:
//
//	                                  stopped store      running store and its next start
//	                                  before  now        before  now
//	the process died                     157    0           167    0
//	altered, shortened or lost data      113    0           101    0
//	another error                         13    0            11    0
//	refused at the start                   0  284             -    8
//	503, then refused at the next start    -    -             -  266
//	no page in use was hit                17   16            21   26
//
// With the checks, a turn takes 1.06 to 1.1 times the CPU time, and a page of 50 messages 1.13 times.
//
// Three weaknesses are left. If the damage is in the pages above a session or an API key, requests for it get 404 or
// 401 until the next start refuses the file. bbolt scans all pages after a failed commit, in a goroutine of its own. So
// the process dies if a commit fails, for example on a full disk, while the file has a damaged page. A damaged page
// number in a branch page could make bbolt search in a circle. The next start then refuses the file.
//
// # Why bbolt
//
// The alternative, Pebble, was measured. Pebble writes 2.5 KB for a turn instead of 57 KB, ends 31,304 instead of 6,576
// turns a second with 64 callers, and checksums its blocks. But with cgo, which `go run` uses where gcc is installed,
// the first compilation would take 181 instead of 126 s of CPU time. The binary would grow by 12.5 MB, and 30 modules
// would be added. Deleted text would stay in pebble's tables and recycled logs until they are compacted. So bbolt
// stays, with the checks above.
package embedded
