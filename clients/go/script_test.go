package throttle

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// script is a server that replies to each command with the next item of its script.
type script struct {
	mu    sync.Mutex
	items []any
	byKey map[string][]any
	// always is the reply to commands for which the script has no item, unless it is nil.
	always any
	// sent has the commands that arrived, unexpected those without a reply.
	sent, unexpected []string
	dials, opened    int
	// generation is the number of the connection on which the last command arrived.
	generation int
	isOver     bool
	// nodes has the nodes of a cluster by key, known those that were last read.
	nodes, known map[string]string
	open         map[*scriptedConn]bool
	// gate is closed when the calls of an instant have all begun, running when the process runs,
	// and ticking when its timers do.
	gate, running, ticking chan struct{}
}

func newScript() *script {
	s := &script{byKey: map[string][]any{}, open: map[*scriptedConn]bool{}}
	s.gate = closedAlready
	s.running, s.ticking = closedAlready, closedAlready
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

// pause stops the process for some time. Then it reads what has arrived before its timers run.
func (s *script) pause(d time.Duration) {
	running, ticking := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.running, s.ticking = running, ticking
	s.mu.Unlock()
	time.Sleep(d)
	close(running)
	synctest.Wait()
	close(ticking)
	synctest.Wait()
}

func (s *script) waitToRun() {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	<-running
}

// afterFunc is time.AfterFunc of a process that may pause.
func (s *script) afterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		s.mu.Lock()
		ticking := s.ticking
		s.mu.Unlock()
		<-ticking
		f()
	})
}

// add adds items, for the commands with this key unless it is empty.
func (s *script) add(items []any, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == "" {
		s.items = append(s.items, items...)
	} else {
		s.byKey[key] = append(s.byKey[key], items...)
	}
}

// left returns the items that no command has used.
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

// routed is the script of a cluster.
type routed struct{ *script }

func (r routed) Node(key string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	node, ok := r.known[key]
	return node, ok
}

func (r routed) Primaries() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.known))
}

func (r routed) Load(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = r.nodes
	return nil
}

func (s *script) Dial(ctx context.Context, node string) (Conn, error) {
	s.waitForGate()
	s.mu.Lock()
	s.dials++
	var item any
	if len(s.items) > 0 {
		item = s.items[0]
	}
	slow, isSlow := item.(object)
	took, isDial := slow["dial_ms"].(float64)
	if (isSlow && isDial || item == "refuse") && !s.isOver {
		s.items = s.items[1:]
	}
	isRefused := s.isOver || item == "refuse"
	s.mu.Unlock()
	if isRefused {
		return nil, errors.New("connection refused")
	}
	if isDial && !sleep(ctx, time.Duration(took)*time.Millisecond) {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	c := &scriptedConn{
		script: s, node: node, number: s.opened, closed: make(chan struct{}),
		interrupted: make(chan struct{}, 1),
	}
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

// next records a command and returns the next item for it.
func (s *script) next(c *scriptedConn, words []string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return object{"error": "ERR the timeline is over"}
	}
	s.generation = c.number
	s.sent = append(s.sent, strings.TrimSpace(c.node+" "+strings.Join(words, " ")))
	for _, word := range words[1:] {
		if items := s.byKey[word]; len(items) > 0 {
			s.byKey[word] = items[1:]
			return items[0]
		}
	}
	if len(s.items) == 0 && s.always != nil {
		return s.always
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
	// node is empty without a cluster.
	node   string
	number int
	once   sync.Once
	closed chan struct{}
	// interrupted ends a Receive.
	interrupted chan struct{}
	// item is the reply to the command, which arrives at the instant due.
	item any
	due  time.Time
}

func (c *scriptedConn) close() { c.once.Do(func() { close(c.closed) }) }

func (c *scriptedConn) Close() error {
	c.close()
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	delete(c.script.open, c)
	return nil
}

func (c *scriptedConn) Send(words []string) error {
	select {
	case <-c.closed:
		return ErrNotSent
	default:
	}
	c.script.waitForGate()
	c.item, c.due = c.script.next(c, words), time.Now()
	if late, ok := c.item.(object); ok && late["delay_ms"] != nil {
		delay := time.Duration(late["delay_ms"].(float64) * float64(time.Millisecond))
		c.item, c.due = late["reply"], c.due.Add(delay)
	}
	if c.item == "silent" {
		c.due = c.due.Add(24 * time.Hour)
	}
	return nil
}

func (c *scriptedConn) Receive() (any, error) {
	timer := time.NewTimer(time.Until(c.due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
		return nil, io.EOF
	case <-c.interrupted:
		if time.Now().Before(c.due) {
			return nil, ErrInterrupted
		}
	}
	c.script.waitToRun()
	if c.item == "lost" || c.item == "close" {
		c.close()
		return nil, io.EOF
	}
	if failure, ok := c.item.(object); ok {
		return nil, ServerError(failure["error"].(string))
	}
	return replyOf(c.item), nil
}

func (c *scriptedConn) Interrupt() {
	select {
	case c.interrupted <- struct{}{}:
	default:
	}
}
