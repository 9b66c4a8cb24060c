// Command chaos drives real Parley servers through faults and checks what their clients saw. `make chaos` runs it for an hour and
// writes its table into the guide on reliability; `go test ./cmd/chaos` is the short form.
//
// A row of the table is a kind of fault in certain surroundings (rows*.go). A try of a row starts the processes:
// servers, Redis, and a model server that may lie. Clients send messages, read replies, and change between the nodes
// (client.go). Meanwhile the steps of a schedule happen (load.go). A seed decides the schedule, so a try can be
// repeated, although the processes never run in exactly the same way. After the faults, the try reads what the store
// has. Package history checks everything that was recorded. The row itself checks promises about memory, /readyz and
// times.
//
// The clients reach the nodes through a load balancer of this package (gate.go), which also cuts connections. Redis runs with
// package redistest. It needs a testing.TB, so each try has one of its own (scene.go).
//
// Three rows need more than processes. A small file system needs the right to mount. The clock of Redis is a preloaded
// library, which needs gcc. A Go program does not use libc's clock, so the server is built with a changed package time
// (clock.go). This build compiles the whole standard library, which takes two minutes of one core without Go's cache.
// So the short form leaves it out. A row that cannot run is skipped, and the table says why.
//
// To add a row, write a function that starts the surroundings and calls underLoad with its steps. Make sure that the
// row fails before the server is repaired, or while the repair is taken out: a row that cannot fail proves nothing.
package main
