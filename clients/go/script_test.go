package throttle

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// script is a server that answers each command with the next item of its script.
type script struct {
	mu    sync.Mutex
	items []any
	byKey map[string][]any
	// sent has the commands that arrived, unexpected those without an answer.
	sent, unexpected []string
	dials, opened    int
	// generation is the number of the connection on which the last command arrived.
	generation int
	isOver     bool
	open       map[*scriptedConn]bool
	// gate is closed when the calls of an instant have all begun.
	gate chan struct{}
}

func newScript() *script {
	s := &script{byKey: map[string][]any{}, open: map[*scriptedConn]bool{}}
	s.gate = make(chan struct{})
	close(s.gate)
	return s
}

// hold makes dials and commands wait until the returned function is called.
func (s *script) hold() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() { close(gate) }
}

func (s *script) waitForGate() {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	<-gate
}

// add adds answers, for the commands with this key unless it is empty.
func (s *script) add(items []any, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		s.items = append(s.items, items...)
	} else {
		s.byKey[key] = append(s.byKey[key], items...)
	}
}

// left returns the answers that answered no command.
func (s *script) left() []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.items)
	for _, items := range s.byKey {
		all = append(all, items...)
	}
	return all
}

// seen is what arrived at a script.
type seen struct {
	sent, unexpected  []string
	dials, generation int
}

func (s *script) seen() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seen{slices.Clone(s.sent), slices.Clone(s.unexpected), s.dials, s.generation}
}

func (s *script) Dial(context.Context, string) (Conn, error) {
	s.waitForGate()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if s.isOver || len(s.items) > 0 && s.items[0] == "refuse" {
		if !s.isOver {
			s.items = s.items[1:]
		}
		return nil, errors.New("connection refused")
	}
	s.opened++
	c := &scriptedConn{script: s, number: s.opened, closed: make(chan struct{})}
	s.open[c] = true
	return c, nil
}

// disconnect closes all connections from the server's side.
func (s *script) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.close()
	}
}

// answer records a command and returns the item that answers it.
func (s *script) answer(c *scriptedConn, words []string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return object{"error": "ERR the timeline is over"}
	}
	s.generation = c.number
	s.sent = append(s.sent, strings.Join(words, " "))
	for _, word := range words[1:] {
		if items := s.byKey[word]; len(items) > 0 {
			s.byKey[word] = items[1:]
			return items[0]
		}
	}
	if len(s.items) == 0 {
		s.unexpected = append(s.unexpected, strings.Join(words, " "))
		return "silent"
	}
	item := s.items[0]
	s.items = s.items[1:]
	return item
}

// scriptedConn is a connection to a script.
type scriptedConn struct {
	script *script
	number int
	once   sync.Once
	closed chan struct{}
}

func (c *scriptedConn) close() { c.once.Do(func() { close(c.closed) }) }

func (c *scriptedConn) Close() error {
	c.close()
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	delete(c.script.open, c)
	return nil
}

func (c *scriptedConn) Do(ctx context.Context, words []string) (any, error) {
	select {
	case <-c.closed:
		return nil, ErrNotSent
	default:
	}
	c.script.waitForGate()
	item := c.script.answer(c, words)
	delay := time.Duration(-1)
	if late, ok := item.(object); ok && late["delay_ms"] != nil {
		delay = time.Duration(late["delay_ms"].(float64) * float64(time.Millisecond))
		item = late["reply"]
	}
	switch text, _ := item.(string); text {
	case "lost", "close":
		c.close()
		return nil, io.EOF
	case "silent":
		delay = time.Hour
	}
	if delay >= 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if failure, ok := item.(object); ok {
		return nil, ServerError(failure["error"].(string))
	}
	return replyOf(item), nil
}
