package goredis

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	throttle "redis-throttle.invalid/go"
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
	// isInterrupted says whether the next read must not wait.
	isInterrupted atomic.Bool
	// bytes has what arrived, from start to end.
	bytes      []byte
	start, end int
	// one is memory for a byte that should not be there.
	one [1]byte
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, bytes: make([]byte, 1<<12)}
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

// interrupt ends a read that waits, or the next one.
func (w *wire) interrupt() {
	w.isInterrupted.Store(true)
	_ = w.SetReadDeadline(past)
}

// hasMore returns true if bytes arrived behind the last reply.
func (w *wire) hasMore() bool { return w.start < w.end }

// reply waits for a reply. After an interruption it first reads what has arrived, because a busy
// program may look at the socket late, and then returns [throttle.ErrInterrupted]. Bytes that
// arrive one by one do not go on.
func (w *wire) reply() (any, error) {
	isLooking := false
	for {
		reply, length, err := decode(w.bytes[w.start:w.end])
		if err != errIncomplete {
			if w.start += length; w.start == w.end {
				w.start, w.end = 0, 0
			}
			if isLooking {
				_ = w.SetReadDeadline(time.Time{})
			}
			return reply, err
		}
		if err := w.makeRoom(); err != nil {
			return nil, err
		}
		if w.isInterrupted.Swap(false) {
			isLooking = true
			if err := w.SetReadDeadline(time.Now().Add(arrived)); err != nil {
				return nil, err
			}
		}
		n, err := w.Read(w.bytes[w.end:])
		w.end += n
		switch isLate := errors.Is(err, os.ErrDeadlineExceeded); {
		case n > 0 && (err == nil || isLate):
		case !isLate && err != nil:
			return nil, err
		case !isLooking:
			// The deadline came after the mark of its interruption was read.
			w.isInterrupted.Store(true)
		case !w.isInterrupted.Load():
			if err := w.SetReadDeadline(time.Time{}); err != nil {
				return nil, err
			}
			return nil, throttle.ErrInterrupted
		}
	}
}

// makeRoom makes room for further bytes of a reply.
func (w *wire) makeRoom() error {
	if w.start > 0 {
		w.end = copy(w.bytes, w.bytes[w.start:w.end])
		w.start = 0
	}
	switch {
	case w.end < len(w.bytes):
	case w.end >= replyMax:
		return errNoReply
	default:
		w.bytes = append(w.bytes, make([]byte, len(w.bytes))...)
	}
	return nil
}

// check returns an error if the server closed the connection while it was idle. It sends nothing.
func (w *wire) check() error {
	if w.pending == nil {
		return nil
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
