//go:build race

package server_test

// The race detector enlarges stacks and heaps at most by the factor memoryFactor.
const (
	raceDetector = true
	memoryFactor = 2
)
