package transport

import (
	"net"
	"syscall"
)

// Options of a TCP socket that package syscall does not define.
const (
	tcpUserTimeout  = 18 // TCP_USER_TIMEOUT, in milliseconds
	tcpNotsentLimit = 25 // TCP_NOTSENT_LOWAT, in bytes
)

// unsentLimit is the number of bytes that the kernel accepts for a connection before it has sent them. The send buffer then holds
// little more than the bytes in flight, so a client that does not read costs about 30 KiB, however large the send buffer may be.
const unsentLimit = 16 << 10

// limitUnsent limits the unsent bytes of a connection. It also makes the kernel end the connection if the client accepts or
// acknowledges nothing for Stall. An error leaves the connection without these limits; its writes have their own deadline.
func limitUnsent(tcp *net.TCPConn) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(Stall.Milliseconds()))
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLimit, unsentLimit)
	})
}
