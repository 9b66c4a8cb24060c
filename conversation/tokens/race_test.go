//go:build race

package tokens

const slowdown = 10 // by the race detector, at most
