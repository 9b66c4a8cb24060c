//go:build !race

package server

const decodeSlowdown = 1
