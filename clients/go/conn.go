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
	// a node redirected a call. Dial must end soon after ctx. It returns a [ServerError] if the
	// server refuses the login.
	Dial(ctx context.Context, node string) (Conn, error)
}

// Conn is a connection, which carries one call at a time.
type Conn interface {
	// Do sends a command once, never again, and returns its reply: an int64, a string, nil, or a
	// []any of these. An error reply is a [ServerError]. If the connection closed before the
	// command was written, it returns [ErrNotSent]. It ends at the end of ctx, and first reads
	// what has arrived.
	Do(ctx context.Context, words []string) (any, error)
	// Close closes the connection at once, also while Do waits, which then returns an error. It may
	// be called again.
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
