// Package storetest is the conformance suite of stores. What conversation.Store, auth.Store and auth.TicketStore promise is tested here,
// once, and run on every store.
//
// Each store runs it as TestStore, and on other topologies in tests whose names begin so. `go test -run TestStore ./store/...` finds all
// of them. The subtests have the same names everywhere: TestStore/<group>/<case>, for example TestStore/queue/full_queue. After a
// change to the storage of history run TestStore/messages; [Run] lists the groups.
//
// The tests see a store only through its interfaces, so anything that only one store can show stands in that store's package: crashes, files,
// scripts, replicas, and expiry, which needs a clock that a test can set. All tests run in parallel on stores that may be shared: each test has an
// account of its own. They wait for events with a timeout that only a hang reaches, and measure no time.
//
// [Contents] reads everything that an owner has. The stores compare it with fixtures that earlier versions have written.
package storetest
