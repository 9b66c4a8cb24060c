//go:build race

package tokens

const raceFactor = 10 // under the race detector, the tests do a tenth of the work
