package throttle

import (
	"context"
	"sync"
	"time"
)

// stagger is the time after which a function of inOrder starts although the one before it waits.
const stagger = time.Millisecond

// tasks are the goroutines of a limiter. None is left after close.
type tasks struct {
	mu       sync.Mutex
	isClosed bool
	group    sync.WaitGroup
	ctx      context.Context
	stop     context.CancelFunc
}

func newTasks() *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop}
}

// run starts a function in a goroutine, and returns true, unless the tasks are closed. The
// function's context ends when they close.
func (t *tasks) run(f func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isClosed {
		t.group.Go(func() { f(t.ctx) })
	}
	return !t.isClosed
}

// close ends the contexts of the goroutines, and lets none start.
func (t *tasks) close() {
	t.mu.Lock()
	t.isClosed = true
	t.mu.Unlock()
	t.stop()
}

// inOrder runs functions at once, and returns when all have ended. Each starts when the one before
// it has ended or waits, so that their commands leave in order.
func inOrder(functions []func()) {
	var all sync.WaitGroup
	for _, f := range functions {
		ended := make(chan struct{})
		all.Go(func() {
			defer close(ended)
			f()
		})
		waits := time.NewTimer(stagger)
		select {
		case <-ended:
		case <-waits.C:
		}
		waits.Stop()
	}
	all.Wait()
}

// sleep returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
