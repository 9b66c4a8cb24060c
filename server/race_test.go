//go:build race

package server_test

// The race detector enlarges stacks and heaps by at most memoryFactor.
const (
	raceDetector = true
	memoryFactor = 2
)
