//go:build race

package tokens

const raceFactor = 10 // by the race detector, at most
