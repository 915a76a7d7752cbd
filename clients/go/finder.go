package throttle

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"
)

// loadsMax is the maximum number of attempts to load the library. One fails if another client loads
// a library after the version was asked.
const loadsMax = 3

var libraryExists = regexp.MustCompile(`(?i)^ERR Library '.*' already exists`)

// finder runs the commands of one search.
type finder struct {
	backends *backends
	deadline time.Time
	node     *node
	key      string
}

// ask sends a command of the search to a node. It counts for no bound: the calls that wait for the
// search do.
func (f *finder) ask(ctx context.Context, n *node, words ...string) (any, error) {
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
	_, err := f.ask(ctx, f.node, words...)
	var rejected *CommandRejected
	if err != nil && (!errors.As(err, &rejected) || rejected.Kind == "NOAUTH") {
		return false, err
	}
	return !didNotRun(err, words), nil
}

// loadFunctions loads the library, unless the server has the same or a newer version.
func (f *finder) loadFunctions(ctx context.Context, n *node) error {
	for left := loadsMax - 1; ; left-- {
		there, err := f.ask(ctx, n, "FCALL", "rl_version", "0")
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
		_, err = f.ask(ctx, n, append(words, functionsText)...)
		if err == nil || left == 0 || !libraryExists.MatchString(err.Error()) {
			return err
		}
	}
}

// loadScript loads the script. It sends EVALSHA first, which a server refuses to a client without a
// login; for a text as long as the script it would close the connection.
func (f *finder) loadScript(ctx context.Context, n *node) error {
	_, err := f.ask(ctx, n, "EVALSHA", scriptSHA1(), "0", "VERSION")
	if beginsWith(err, "NOSCRIPT") {
		_, err = f.ask(ctx, n, "EVAL", scriptText, "0", "VERSION")
	}
	return err
}

// onPrimaries runs a function for every primary of a cluster, because a slot may move to any. It
// waits at most half of the timeout for a primary that does not answer, and returns the error of
// one that refuses.
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
