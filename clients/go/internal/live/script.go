package live

import (
	"context"
	"strings"
	"sync"

	throttle "redis-throttle.invalid/go"
)

// Script is a dialer of a server in this process that replies to each command with the next of the
// given replies, and to later ones with the last. A [throttle.ServerError] is an error reply.
type Script struct {
	mu      sync.Mutex
	replies []any
	sent    []string
}

// NewScript returns a script with these replies.
func NewScript(replies ...any) *Script { return &Script{replies: replies} }

// Banning returns a script of a server that has blocked every caller.
func Banning() *Script {
	return NewScript([]any{int64(0), int64(10), int64(0), int64(-1), int64(0)})
}

// Sent returns the commands that arrived, their words joined by spaces.
func (s *Script) Sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.sent...)
}

// Dial returns a connection.
func (s *Script) Dial(context.Context, string) (throttle.Conn, error) {
	return &scripted{script: s}, nil
}

type scripted struct {
	script *Script
	reply  any
}

func (c *scripted) Send(words []string) error {
	s := c.script
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, strings.Join(words, " "))
	c.reply = throttle.ServerError("ERR a script without replies")
	if len(s.replies) > 0 {
		c.reply = s.replies[0]
	}
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	return nil
}

func (c *scripted) Receive() (any, error) {
	if failure, ok := c.reply.(throttle.ServerError); ok {
		return nil, failure
	}
	return c.reply, nil
}

func (c *scripted) Interrupt()   {}
func (c *scripted) Close() error { return nil }
