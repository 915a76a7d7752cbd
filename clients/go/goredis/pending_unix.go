//go:build unix

package goredis

import (
	"io"
	"syscall"
)

// pending returns whether bytes have arrived at an idle socket, or an error if it is closed.
func pending(socket syscall.Conn) (hasArrived bool, err error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	var found error
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR:
		case err != nil:
			found = err
		case n == 0:
			found = io.EOF
		default:
			hasArrived = true
		}
		return true
	})
	if err != nil {
		return false, err
	}
	return hasArrived, found
}
