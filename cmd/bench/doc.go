// Command bench fills the table of the guide on performance: `make bench`. It starts the processes of a measurement (the scripted
// model, the bare pipe, servers on the embedded store and on Redis), runs `parley bench` against each, and compares.
//
// A row of the table is one workload (rows.go), and a subject is one server under test. A round measures each row with each
// subject, one after the other, so that a change of the machine's speed affects all subjects. Each measurement has a new server
// and a new store. A ratio compares two subjects in the same round. The table shows medians, and in brackets the least and the
// highest value of the rounds.
//
// On a machine with two cores or more, the server has a core of its own (taskset). The load generator, the model and Redis share
// another core. So they affect the server's figures only through the caches of the processor.
//
// With --baseline, the binary of another version is measured in the same rounds, and --benchstat writes files for benchstat.
package main
