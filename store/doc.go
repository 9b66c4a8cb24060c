// Package store opens the store that a URL names.
//
// There are two stores, and they behave alike in everything that conversation.Store and auth.Store promise: the same operations, results and
// errors. Which one is used decides only how many nodes there can be and what a crash can lose.
//
//   - file:PATH is package embedded: one process, one file, no server to run. It is the default.
//   - redis://, rediss://, redis+sentinel:// and redis+cluster:// are package redis: any number of nodes on one Redis or Valkey, 7.0 or
//     newer. How durable it is depends on how Redis is configured.
//
// Both are tested by the one suite of package storetest, as TestStore in each package, and TestStores_SameAnswers here has both do the
// same random operations and compares the results. Package record is the format of the messages in both.
package store
