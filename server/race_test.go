//go:build race

package server_test

// leniency is by how much the race detector makes stacks and heaps larger, at most.
const leniency = 2
