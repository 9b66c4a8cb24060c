//go:build !race

package server_test

// memoryFactor is by how much the race detector makes stacks and heaps larger, at most.
const (
	raceDetector = false
	memoryFactor = 1
)
