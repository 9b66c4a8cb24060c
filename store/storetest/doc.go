// Package storetest is the conformance suite of stores. It tests what conversation.Store and auth.Store promise, with the
// same tests for every store.
//
// Each store runs the suite as TestStore. Tests on other topologies have names that begin with TestStore. `go test -run TestStore
// ./store/...` runs all of them. The subtests have the same names everywhere: TestStore/<group>/<case>, for example
// TestStore/queue/full_queue_refuses_a_turn. After a change to the storage of history, run TestStore/messages. [Run]
// and [RunLong] list the groups.
//
// The tests use a store only through its interfaces. Tests of crashes, files, scripts, replicas and expiry are in the package of
// the store. Expiry needs a clock that a test can set. All tests run in parallel on stores that may be shared, so each test uses
// its own account. The tests wait for events with a timeout that only a hang reaches. They do not measure time.
//
// [Contents] reads all data of [FixtureOwner]. The stores compare the result with fixtures that earlier versions have written.
package storetest
