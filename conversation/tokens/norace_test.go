//go:build !race

package tokens

const slowdown = 1
