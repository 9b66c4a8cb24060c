//go:build !race

package server_test

const leniency = 1
