//go:build !linux

package transport

import "net"

// limitUnsent does nothing: only Linux has the options.
func limitUnsent(*net.TCPConn) {}
