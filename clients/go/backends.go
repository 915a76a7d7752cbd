package throttle

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Backend is the code that decides on the server.
type Backend string

// The back ends.
const (
	// BackendAuto is the first one that the server has, in the order module, functions, script.
	BackendAuto Backend = "auto"
	// BackendModule is the module.
	BackendModule Backend = "module"
	// BackendFunctions is the library of functions, which the limiter loads.
	BackendFunctions Backend = "functions"
	// BackendScript is the library as a script.
	BackendScript Backend = "script"
)

// repetitions is the number of times that a call is sent again after the server lacked its back
// end.
const repetitions = 2

// unknownCommand matches the server's error of an unknown command. That of the library has no
// quotes.
var unknownCommand = regexp.MustCompile("(?i)^ERR unknown command ['`]([^'`]*)")

// backends sends each call to the back end that the server has.
type backends struct {
	x      *exchange
	wanted Backend

	mu sync.Mutex
	// known is the back end in use; empty if none has been searched.
	known   Backend
	current *search
}

// search looks for a back end, for all calls that wait.
type search struct {
	ended    chan struct{}
	deadline time.Time
	found    Backend
	err      error
}

func newBackends(x *exchange, wanted Backend) *backends {
	b := &backends{x: x, wanted: wanted}
	if wanted == BackendAuto || wanted == BackendModule {
		b.known = BackendModule
	}
	return b
}

// inUse returns the back end in use.
func (b *backends) inUse() Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.known
}

// deliver sends a call, again only if its back end was missing.
func (b *backends) deliver(t *turn, c *call) (any, error) {
	if !strings.HasPrefix(c.words[0], "RL.") {
		return b.x.transact(t, c.words)
	}
	known := b.inUse()
	failed := known
	for again := 0; ; again++ {
		if known == "" {
			var err error
			if known, err = b.search(t, c, failed); err != nil {
				return nil, err
			}
		}
		words := c.writtenFor(known).words
		reply, err := b.x.transact(t, words)
		if b.wanted == BackendModule || again == repetitions || !didNotRun(err, words) {
			b.note(err)
			return reply, err
		}
		failed, known = known, ""
	}
}

// writtenFor returns the call as a back end reads it.
func (c *call) writtenFor(known Backend) *call {
	if known == BackendModule {
		return c
	}
	if c.withoutModule != nil {
		c = c.withoutModule()
	}
	if known == BackendScript {
		return c.inLibrary(scriptSHA1())
	}
	return c.inLibrary("")
}

// note makes the next call try the module first after a lost connection, because the server may
// have been restarted with it.
func (b *backends) note(err error) {
	if err == nil || b.wanted != BackendAuto {
		return
	}
	var unavailable *Unavailable
	if !errors.As(err, &unavailable) {
		return
	}
	if unavailable.Reason == ReasonConnection || beginsWith(unavailable, "LOADING") {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.known = BackendModule
	}
}

// didNotRun returns true if the call did not run, because the server lacks its command, function or
// script.
func didNotRun(err error, words []string) bool {
	if err == nil {
		return false
	}
	var rejected *CommandRejected
	if !errors.As(err, &rejected) {
		return false
	}
	command := words[0]
	isFunction := strings.HasPrefix(command, "FCALL")
	switch {
	case command == "EVALSHA":
		return rejected.Kind == "NOSCRIPT"
	case isFunction && hasNoFunction(err):
		return true
	case !isFunction && !strings.HasPrefix(command, "RL."):
		return false
	}
	named := unknownCommand.FindStringSubmatch(rejected.Message)
	return named != nil && strings.EqualFold(named[1], command)
}

func hasNoFunction(err error) bool {
	return err != nil && strings.HasPrefix(strings.ToLower(err.Error()), "err function not found")
}

// search returns a back end other than one that failed. One search serves all calls that wait.
func (b *backends) search(t *turn, c *call, failed Backend) (Backend, error) {
	deadline := time.Now().Add(t.left())
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		b.mu.Lock()
		if b.known != "" && b.known != failed {
			defer b.mu.Unlock()
			return b.known, nil
		}
		s := b.current
		if s == nil {
			s = &search{ended: make(chan struct{}), deadline: deadline}
			b.current = s
			b.start(s, t.node, c, failed)
		}
		b.mu.Unlock()
		select {
		case <-s.ended:
		case <-t.ctx.Done():
			return "", t.cancelled(false)
		case <-timer.C:
			return "", notSent(ReasonOverloaded, "not sent: no back end was found in time")
		}
		// A search ends at the deadline of the call that started it. Later ones search again.
		var unavailable *Unavailable
		isLate := errors.As(s.err, &unavailable) && unavailable.Reason != ReasonServer
		if !isLate || !s.deadline.Before(deadline) {
			return s.found, s.err
		}
	}
}

// start runs a search in its own goroutine, because calls that began later use its result.
func (b *backends) start(s *search, n *node, c *call, failed Backend) {
	s.err = ErrClosed
	isStarted := b.x.tasks.run(func(ctx context.Context) {
		finder := &finder{backends: b, deadline: s.deadline, node: n, key: c.keys[0]}
		s.found, s.err = finder.find(ctx, failed)
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.err == nil {
			b.known = s.found
		}
		b.current = nil
		close(s.ended)
	})
	if !isStarted {
		b.current = nil
		close(s.ended)
	}
}

// loadsMax is the maximum number of attempts to load the library. One fails if another client loads
// a library after the version was read.
const loadsMax = 3

var libraryExists = regexp.MustCompile(`(?i)^ERR Library '.*' already exists`)

// finder runs the commands of one search.
type finder struct {
	backends *backends
	deadline time.Time
	node     *node
	key      string
}

// send sends a command of the search to a node. It counts for no bound: the calls that wait for the
// search do.
func (f *finder) send(ctx context.Context, n *node, words ...string) (any, error) {
	t := n.x.newTurn(ctx, &call{words: words, isLast: true})
	defer n.x.end(t)
	t.limit = time.Until(f.deadline)
	t.node, t.isUrgent, t.isFree = n, true, true
	return t.transact(words, false)
}

// find returns the back end of the server.
func (f *finder) find(ctx context.Context, failed Backend) (Backend, error) {
	wanted := f.backends.wanted
	if wanted == BackendAuto && failed != BackendModule {
		hasModule, err := f.hasModule(ctx)
		if hasModule || err != nil {
			return BackendModule, err
		}
	}
	if wanted != BackendScript {
		err := f.onPrimaries(ctx, f.loadFunctions)
		var rejected *CommandRejected
		isRefused := errors.As(err, &rejected) || beginsWith(err, "READONLY")
		// The server would refuse the script to a client without a login as well.
		if err == nil || wanted == BackendFunctions || !isRefused || beginsWith(err, "NOAUTH") {
			return BackendFunctions, err
		}
	}
	return BackendScript, f.onPrimaries(ctx, f.loadScript)
}

// hasModule returns true if the server has the module, even if it refuses the call.
func (f *finder) hasModule(ctx context.Context) (bool, error) {
	words := probeCall(f.key).words
	_, err := f.send(ctx, f.node, words...)
	var rejected *CommandRejected
	if err != nil && (!errors.As(err, &rejected) || rejected.Kind == "NOAUTH") {
		return false, err
	}
	return !didNotRun(err, words), nil
}

// loadFunctions loads the library, unless the server has the same or a newer version.
func (f *finder) loadFunctions(ctx context.Context, n *node) error {
	for left := loadsMax - 1; ; left-- {
		there, err := f.send(ctx, n, "FCALL", "rl_version", "0")
		isMissing := hasNoFunction(err)
		if err != nil && !isMissing {
			return err
		}
		if text, ok := there.(string); ok && !isMissing && !isOlder(text, libraryVersion()) {
			return nil
		}
		words := []string{"FUNCTION", "LOAD"}
		if !isMissing {
			// Only over an older version, so that no newer or foreign library is overwritten.
			words = append(words, "REPLACE")
		}
		_, err = f.send(ctx, n, append(words, functionsText)...)
		if err == nil || left == 0 || !libraryExists.MatchString(err.Error()) {
			return err
		}
	}
}

// loadScript loads the script. It sends EVALSHA first, which a server refuses to a client without a
// login; for a text as long as the script it would close the connection.
func (f *finder) loadScript(ctx context.Context, n *node) error {
	_, err := f.send(ctx, n, "EVALSHA", scriptSHA1(), "0", "VERSION")
	if beginsWith(err, "NOSCRIPT") {
		_, err = f.send(ctx, n, "EVAL", scriptText, "0", "VERSION")
	}
	return err
}

// onPrimaries runs a function for every primary of a cluster, because a slot may move to any. It
// waits at most half of the timeout for a primary that does not reply, and returns the error of one
// that refuses.
func (f *finder) onPrimaries(
	ctx context.Context, act func(ctx context.Context, n *node) error,
) error {
	x := f.backends.x
	if x.router == nil {
		return act(ctx, f.node)
	}
	ctx, stop := context.WithTimeout(ctx, x.options.timeout/2)
	defer stop()
	names := x.router.Primaries()
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for at, name := range names {
		all.Go(func() { errs[at] = act(ctx, x.named(name)) })
	}
	all.Wait()
	return refusalOf(errs)
}

// refusalOf returns the error of a primary that refused, or any if none succeeded.
func refusalOf(errs []error) error {
	failures := 0
	var last error
	for _, err := range errs {
		var rejected *CommandRejected
		if errors.As(err, &rejected) {
			return err
		}
		if err != nil {
			failures++
			last = err
		}
	}
	if failures == len(errs) {
		return last
	}
	return nil
}
