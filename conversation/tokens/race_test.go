//go:build race

package tokens

const raceFactor = 10 // the race detector slows the tests down by at most this factor
