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

// wire is the socket of a connection.
type wire struct{ net.Conn }

// Read reads like the socket, and after its deadline once more: a busy program may look at the
// socket late, and what arrived in time counts.
func (w *wire) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if err := w.SetReadDeadline(time.Now().Add(arrived)); err != nil {
		return 0, err
	}
	return w.Conn.Read(into)
}

// check returns an error if the server closed the connection while it was idle. It sends nothing.
func (w *wire) check() error {
	raw := w.Conn
	secure, isSecure := raw.(*tls.Conn)
	if isSecure {
		raw = secure.NetConn()
	}
	socket, ok := raw.(syscall.Conn)
	if !ok {
		return nil
	}
	hasArrived, err := pending(socket)
	if err != nil || !hasArrived {
		return err
	}
	if !isSecure {
		return errors.New("a reply without a command")
	}
	// TLS sends records of its own, also one before it closes.
	if err := w.SetReadDeadline(time.Now().Add(arrived)); err != nil {
		return err
	}
	n, err := secure.Read(make([]byte, 1))
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return w.SetReadDeadline(time.Time{})
	}
	return errors.Join(io.EOF, err)
}
