//go:build !race

package openai

// Only the race detector enlarges stacks and heaps, so memoryFactor is 1 here.
const memoryFactor = 1
