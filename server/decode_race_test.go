//go:build race

package server

const decodeSlowdown = 20 // by the race detector, at most
