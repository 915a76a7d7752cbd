package throttle

import (
	"context"
	"errors"
)

// Dialer opens the connections of a limiter. The adapter of a driver implements it, such as that of
// the module redis-throttle.invalid/go/goredis. Its methods may be called by several goroutines at
// once. If it has a method Err() error that returns an error, [New] returns that. If it implements
// [io.Closer], the limiter closes it in its Close.
type Dialer interface {
	// Dial opens a connection that can carry calls: TLS and login are done. The node is empty for a
	// single server; for a [Router] it is an address that Node or Primaries returned, or to which
	// a node redirected a call. Dial must end soon after ctx: until it does, its goroutine stays,
	// and a connection that it then returns is closed. It returns a [ServerError] if the server
	// refuses the login.
	Dial(ctx context.Context, node string) (Conn, error)
}

// Conn is a connection, which carries one call at a time. One goroutine at a time sends and
// receives. Interrupt and Close may be called by others at any moment. If it has a method HasRead()
// bool that returns true, a reply was read while it was dialled, so that the server is not silent.
type Conn interface {
	// Send writes a command once, never again. If the connection closed before the command was
	// written, it returns [ErrNotSent].
	Send(words []string) error
	// Receive waits for the next reply and returns it: an int64, a string, nil, or a []any of
	// these. An error reply is a [ServerError]. After Interrupt it reads what has arrived, and
	// returns [ErrInterrupted] if that is not a whole reply. Another Receive then goes on.
	Receive() (any, error)
	// Interrupt ends the Receive that waits, or the next one if none does. It does not wait.
	Interrupt()
	// Close closes the connection at once, also while Send or Receive waits, which then returns an
	// error. It may be called again.
	Close() error
}

// Router is the Dialer of a cluster.
type Router interface {
	Dialer
	// Node returns the address of the primary of a key, or false if Load must be called first.
	Node(key string) (string, bool)
	// Load reads the slot map again.
	Load(ctx context.Context) error
	// Primaries returns the addresses of all primaries that are known.
	Primaries() []string
}

// ServerError is an error reply, as the server wrote it.
type ServerError string

// Error returns the server's text.
func (e ServerError) Error() string { return string(e) }

// ErrNotSent is the error of a [Conn] that closed while it was idle: the command was not written.
var ErrNotSent = errors.New("the connection closed while it was idle")

// ErrInterrupted is the error of a [Conn] that waited for a reply until its Interrupt.
var ErrInterrupted = errors.New("the wait for a reply was interrupted")
