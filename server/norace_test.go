//go:build !race

package server_test

// memoryFactor is the factor by which the race detector enlarges stacks and heaps at most; 1 without it.
const (
	raceDetector = false
	memoryFactor = 1
)
