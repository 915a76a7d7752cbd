package live

import (
	"context"
	"strings"
	"sync"

	throttle "redis-throttle.invalid/go"
)

// Script is a dialer of a server in this process that replies to each command with the next of the
// given replies, and to later ones with the last. Replies are as in cases.json.
type Script struct {
	mu      sync.Mutex
	replies []any
	sent    []string
}

// NewScript returns a script with these replies.
func NewScript(replies ...any) *Script { return &Script{replies: replies} }

// Banning returns a script of a server that has blocked every caller.
func Banning() *Script {
	return NewScript([]any{0.0, 10.0, 0.0, -1.0, 0.0})
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
	c.reply = map[string]any{"error": "ERR a script without replies"}
	if len(s.replies) > 0 {
		c.reply = s.replies[0]
	}
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	return nil
}

func (c *scripted) Receive() (any, error) {
	if failure, ok := c.reply.(map[string]any); ok {
		return nil, throttle.ServerError(failure["error"].(string))
	}
	return raw(c.reply), nil
}

// raw returns a reply as a connection returns it.
func raw(reply any) any {
	switch reply := reply.(type) {
	case float64:
		return int64(reply)
	case []any:
		all := make([]any, len(reply))
		for at, one := range reply {
			all[at] = raw(one)
		}
		return all
	}
	return reply
}

func (c *scripted) Interrupt()   {}
func (c *scripted) Close() error { return nil }
