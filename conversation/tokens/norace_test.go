//go:build !race

package tokens

const raceFactor = 1
