package live

import (
	"context"

	throttle "redis-throttle.invalid/go"
)

// Banning is a dialer of a server that has blocked every caller.
type Banning struct{}

// Dial returns a connection.
func (Banning) Dial(context.Context, string) (throttle.Conn, error) { return banned{}, nil }

type banned struct{}

func (banned) Send([]string) error { return nil }
func (banned) Interrupt()          {}
func (banned) Close() error        { return nil }

func (banned) Receive() (any, error) {
	return []any{int64(0), int64(10), int64(0), int64(-1), int64(0)}, nil
}
