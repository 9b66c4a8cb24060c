// Command bench fills the table of the guide on performance: `make bench`. It starts the processes of a measurement (the scripted
// model, the bare pipe, servers on the embedded store and on Redis), runs `parley bench` against each, and compares.
//
// A row of the table is one workload (rows.go). In each round, each row is measured with each subject, one after the other, so that
// a change of the machine's speed meets all of them. Every measurement starts its server and its store anew. A ratio compares two
// subjects in the same round. The table shows medians, and in brackets the least and the highest value of the rounds.
//
// On a machine with two cores or more, the server has a core of its own (taskset). The load generator, the model and Redis share
// another core. So the server's figures contain nothing of theirs, except what they do to the caches of the processor.
//
// With --baseline, the binary of another version is measured in the same rounds, and --benchstat writes files for benchstat.
package main
