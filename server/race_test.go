//go:build race

package server_test

// memoryFactor is the factor by which the race detector enlarges stacks and heaps at most.
const (
	raceDetector = true
	memoryFactor = 2
)
