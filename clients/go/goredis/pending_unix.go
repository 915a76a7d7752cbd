//go:build unix

package goredis

import (
	"io"
	"syscall"
)

// pending looks at an idle socket.
type pending struct {
	socket     syscall.RawConn
	peek       func(fd uintptr)
	hasArrived bool
	err        error
}

func newPending(socket syscall.RawConn) *pending {
	p := &pending{socket: socket}
	// Created once, because a call would otherwise allocate it.
	p.peek = func(fd uintptr) {
		var one [1]byte
		n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR:
		case err != nil:
			p.err = err
		case n == 0:
			p.err = io.EOF
		default:
			p.hasArrived = true
		}
	}
	return p
}

// look returns whether bytes have arrived, or an error if the socket is closed.
func (p *pending) look() (hasArrived bool, err error) {
	p.hasArrived, p.err = false, nil
	if err := p.socket.Control(p.peek); err != nil {
		return false, err
	}
	return p.hasArrived, p.err
}
