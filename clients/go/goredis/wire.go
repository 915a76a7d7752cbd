package goredis

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// arrived is the time in which bytes that have arrived are read.
const arrived = time.Millisecond

// past is a deadline that has passed: a read returns only what TLS holds already.
var past = time.Unix(1, 0)

// wire is the socket of a connection.
type wire struct {
	net.Conn
	// secure is the connection as one of TLS, otherwise nil.
	secure *tls.Conn
	// pending is nil if the socket cannot be looked at.
	pending *pending
	// isLate says whether the deadline of the call has passed.
	isLate bool
	// one is memory for a byte that should not be there.
	one [1]byte
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	raw := conn
	if secure, ok := conn.(*tls.Conn); ok {
		w.secure, raw = secure, secure.NetConn()
	}
	if socket, ok := raw.(syscall.Conn); ok {
		if control, err := socket.SyscallConn(); err == nil {
			w.pending = newPending(control)
		}
	}
	return w
}

// Close closes the socket at once. TLS would first write to it, which may be silent.
func (w *wire) Close() error {
	if w.secure != nil {
		return w.secure.NetConn().Close()
	}
	return w.Conn.Close()
}

// setDeadline sets the deadline of a call.
func (w *wire) setDeadline(deadline time.Time) error {
	w.isLate = false
	return w.SetDeadline(deadline)
}

// Read reads like the socket, and after its deadline for a moment more: a busy program may look at
// the socket late, and what arrived in time counts. What arrives byte by byte does not go on.
func (w *wire) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)
	if n > 0 || w.isLate || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	w.isLate = true
	if err := w.SetReadDeadline(time.Now().Add(arrived)); err != nil {
		return 0, err
	}
	return w.Conn.Read(into)
}

// check returns an error if the server closed the connection while it was idle. It sends nothing.
func (w *wire) check() error {
	if w.pending == nil {
		return nil
	}
	// The deadline of the last call may have passed.
	if err := w.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	hasArrived, err := w.pending.look()
	switch {
	case err != nil:
		return err
	case w.secure != nil:
		return w.checkRecords(hasArrived)
	case hasArrived:
		return errors.New("a reply without a command")
	}
	return nil
}

// checkRecords returns an error if a record is a reply or the end. TLS sends records of its own,
// also one before it closes. It may have read one from the socket together with the last reply.
func (w *wire) checkRecords(hasArrived bool) error {
	deadline := past
	if hasArrived {
		deadline = time.Now().Add(arrived)
	}
	if err := w.SetReadDeadline(deadline); err != nil {
		return err
	}
	n, err := w.secure.Read(w.one[:])
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return w.SetReadDeadline(time.Time{})
	}
	return errors.Join(io.EOF, err)
}
