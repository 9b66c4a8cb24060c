//go:build !race

package server_test

// Only the race detector enlarges stacks and heaps, so memoryFactor is 1 here.
const (
	raceDetector = false
	memoryFactor = 1
)
