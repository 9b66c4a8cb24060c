// Package store opens the store that a URL names.
//
// There are two stores. Both return the same results and errors for everything that conversation.Store and auth.Store promise.
// The stores differ only in the number of nodes and in the data that a crash can lose.
//
//   - file:PATH opens the store of package embedded: one process, one file with a journal beside it, no server to run. It is the
//     default.
//   - redis://, rediss://, redis+sentinel:// and redis+cluster:// open the store of package redis: any number of nodes share one
//     Redis or Valkey, 7.0 or newer. Durability depends on how Redis is configured.
//
// TestStore in each package runs the tests of package storetest. TestStores_RandomOperations_SameResults, in this package, runs
// the same random operations on both stores and compares the results. Both stores encode their values with package record.
package store
