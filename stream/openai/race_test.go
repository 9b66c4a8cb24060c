//go:build race

package openai

// The race detector enlarges stacks and heaps at most by the factor memoryFactor.
const memoryFactor = 2
