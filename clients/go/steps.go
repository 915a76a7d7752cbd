package throttle

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange sends calls to their nodes.
type exchange struct {
	dialer Dialer
	// router is the dialer of a cluster, otherwise nil.
	router Router
	// single is the node of a single server.
	single   *node
	options  *options
	tasks    *tasks
	backends *backends
	known    *knownDenials
	// onLate gets the replies to calls whose callers have gone.
	onLate func(c *call, reply any, err error)
	// turns keeps turns for further calls. Channels of a test's bubble belong to its limiter.
	turns sync.Pool
	// Tests replace these.
	jitter    func() float64
	afterFunc func(d time.Duration, f func()) *time.Timer
	// isClosing says whether Close has begun.
	isClosing atomic.Bool

	mu    sync.Mutex
	nodes map[string]*node
	// leaving are nodes that are no primaries any more and still carry calls.
	leaving []*node
	// reading is the reading of the slot map that calls wait for. wasRead says whether one ended.
	reading *mapReading
	wasRead bool
	// isReading says whether the slot map is being read again; it is not before readAgainAt.
	isReading   bool
	readAgainAt time.Time
	isClosed    bool
	// late is the number of functions of the dialer that run after the end of their context.
	late atomic.Int32
}

func newExchange(dialer Dialer, o *options, known *knownDenials) *exchange {
	x := &exchange{dialer: dialer, options: o, known: known, tasks: newTasks(), jitter: jitter}
	x.nodes, x.afterFunc = map[string]*node{}, time.AfterFunc
	x.router, _ = dialer.(Router)
	x.backends = newBackends(x, o.backend)
	x.single = x.named("")
	return x
}

// named returns the node of this name.
func (x *exchange) named(name string) *node {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.nodes[name]
	if n == nil {
		n = &node{
			name: name, x: x, renewals: make(chan struct{}, renewalSlots),
			ends: make(chan struct{}, endSlots),
		}
		n.breaker = breaker{failuresMax: x.options.breakerFailures, pause: x.options.breakerPause}
		n.pool.generation, n.pool.isClosed = 1, x.isClosed
		x.nodes[name] = n
	}
	return n
}

// send sends a call once and returns its reply, within the limiter's timeout.
func (x *exchange) send(ctx context.Context, c *call) (any, error) {
	t := x.newTurn(ctx, c)
	defer x.end(t)
	if t.limit <= 0 {
		return nil, notSent(ReasonOverloaded, "not sent: the time is over")
	}
	n, err := x.locate(t, c.keys[0])
	if err != nil {
		return nil, err
	}
	reply, err := x.deliver(t, n, c)
	if budget := c.budget(); budget != nil {
		budget.left = min(budget.left, t.left())
	}
	return reply, err
}

// sendUrgent sends a renewal or an end. It waits for a slot until the given instant. While the
// limiter closes no call needs the connections, whose number is the bound then.
func (x *exchange) sendUrgent(ctx context.Context, c *call, until time.Time) (any, error) {
	located := x.newTurn(ctx, c)
	n, err := x.locate(located, c.keys[0])
	x.end(located)
	if err != nil {
		return nil, err
	}
	if !x.isClosing.Load() {
		slots := n.ends
		if c.isRenewal {
			slots = n.renewals
		}
		if err := takeSlot(ctx, slots, until); err != nil {
			return nil, err
		}
		defer func() { <-slots }()
	}
	t := x.newTurn(ctx, c)
	defer x.end(t)
	t.isUrgent = true
	return x.deliver(t, n, c)
}

// takeSlot waits for one of the slots of the renewals or of the ends.
func takeSlot(ctx context.Context, slots chan<- struct{}, until time.Time) error {
	waiting, stop := context.WithDeadline(ctx, until)
	defer stop()
	select {
	case slots <- struct{}{}:
		return nil
	case <-waiting.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return notSent(ReasonOverloaded, "not sent: no slot was free before the end")
}

func (x *exchange) deliver(t *turn, n *node, c *call) (any, error) {
	if err := t.ctx.Err(); err != nil {
		return nil, err
	}
	t.node = n
	reply, err := x.backends.deliver(t, c)
	t.leave()
	return reply, err
}

// classified returns a server's error reply as a CommandRejected or an Unavailable. A client of one
// server cannot follow a redirection.
func (x *exchange) classified(reply error) error {
	known := classified(reply)
	if x.router == nil && beginsWith(known, "MOVED", "ASK") {
		return &CommandRejected{
			Kind: "MOVED", err: reply, Message: "the server is a node of a cluster: use the " +
				"cluster client (" + known.Error() + ")",
		}
	}
	return known
}

// transact sends a command once. It follows a redirection once: the node that redirects has not run
// the command.
func (x *exchange) transact(t *turn, words []string) (any, error) {
	reply, err := t.transact(words, false)
	if x.router == nil || err == nil {
		return reply, err
	}
	kind, rest, _ := strings.Cut(err.Error(), " ")
	if isUnreachable(err) || beginsWith(err, "MOVED", "CLUSTERDOWN", "READONLY", "MASTERDOWN") {
		x.refresh()
	}
	fields := strings.Fields(rest)
	isRedirection := (kind == "MOVED" || kind == "ASK") && len(fields) >= 2
	if !isRedirection || t.isRedirected {
		return reply, err
	}
	t.isRedirected = true
	t.moveTo(x.named(redirected(fields[1], t.node.name)))
	return t.transact(words, kind == "ASK")
}

// all returns the nodes, those included that still carry calls although they are no primaries.
func (x *exchange) all() []*node {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.AppendSeq(slices.Clone(x.leaving), maps.Values(x.nodes))
}

// openBreakers returns the number of nodes whose breaker is open.
func (x *exchange) openBreakers() int {
	x.mu.Lock()
	all := slices.Collect(maps.Values(x.nodes))
	x.mu.Unlock()
	open := 0
	for _, n := range all {
		n.mu.Lock()
		if n.isOpen(time.Now()) {
			open++
		}
		n.mu.Unlock()
	}
	return open
}

// shut ends the calls in line, and returns channels that are closed when no caller waits for a
// reply.
func (x *exchange) shut() []<-chan struct{} {
	x.isClosing.Store(true)
	var idle []<-chan struct{}
	for _, n := range x.all() {
		idle = append(idle, n.shut())
	}
	return idle
}

// close closes all connections and the dialer, and ends the goroutines.
func (x *exchange) close() {
	x.tasks.close()
	x.mu.Lock()
	x.isClosed = true
	x.mu.Unlock()
	for _, n := range x.all() {
		n.mu.Lock()
		n.pool.close(n, true)
		n.mu.Unlock()
	}
	x.tasks.group.Wait()
	if closer, ok := x.dialer.(io.Closer); ok {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = closer.Close()
		}()
		timer := time.NewTimer(lateLongest)
		defer timer.Stop()
		select {
		case <-closed:
		case <-timer.C:
		}
	}
}
