//go:build !unix

package goredis

import "syscall"

// pending knows nothing of a socket. A connection that closed while it was idle then fails the call
// that uses it.
type pending struct{}

func newPending(syscall.RawConn) *pending { return &pending{} }

func (p *pending) look() (hasArrived bool, err error) { return false, nil }
