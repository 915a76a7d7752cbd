//go:build !unix

package goredis

import "syscall"

// pending returns that nothing is known. A connection that closed while it was idle then fails the
// call that uses it.
func pending(syscall.Conn) (bool, error) { return false, nil }
