package throttle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMOVED_names_the_cluster_client_to_a_client_of_one_server(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *script, limiter *Limiter) {
		s.add([]any{object{"error": "MOVED 42 127.0.0.1:7001"}}, "")
		_, err := limiter.Check(context.Background(), testRule().Of("a"))
		var rejected *CommandRejected
		const text = "the server is a node of a cluster: use the cluster client " +
			"(MOVED 42 127.0.0.1:7001)"
		if !errors.As(err, &rejected) || !strings.Contains(err.Error(), text) {
			t.Error(err)
		}
	})
}

func TestReading_of_the_slot_map_is_one_failure_for_all_callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{script: newScript(), load: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		limiter := limiterFrom(t, c, WithBreaker(2, time.Minute))
		defer limiter.Close(context.Background())
		// The first reading has the time of a first dial. Later ones go on without their callers.
		for _, longest := range []time.Duration{time.Second, 100 * time.Millisecond} {
			began := time.Now()
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					d := mustCheck(t, limiter, context.Background())
					if took := time.Since(began); d.Reason != ReasonConnection || took != longest {
						t.Error(d, took)
					}
				})
			}
			all.Wait()
			if open := limiter.OpenBreakers(); open != 0 {
				t.Error("open breakers:", open)
			}
		}
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonCircuit {
			t.Error(d)
		}
	})
}

// changing is a cluster of scripted nodes whose slot map a test changes.
type changing struct {
	*script
	mu    sync.Mutex
	owner string
	// load runs in each reading of the slot map; nil for nothing.
	load func(context.Context) error
}

func (c *changing) Node(string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner, c.owner != ""
}

func (c *changing) Primaries() []string {
	owner, _ := c.Node("")
	return []string{owner}
}

func (c *changing) Load(ctx context.Context) error {
	if c.load != nil {
		return c.load(ctx)
	}
	return nil
}

func (c *changing) move(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = to
}

func TestCloses_the_connections_of_a_silent_node_that_left_its_cluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{script: newScript(), owner: "old"}
		limiter := limiterFrom(t, c)
		c.add([]any{allowed, "silent", "silent"}, "")
		mustCheck(t, limiter, context.Background())
		began := time.Now()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonTimeout {
					t.Error(d)
				}
			})
		}
		synctest.Wait()
		c.move("new")
		limiter.x.refresh()
		all.Wait()
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Error("the calls took", took)
		}
		synctest.Wait()
		c.script.mu.Lock()
		if open := len(c.open); open != 0 {
			t.Error(open, "connections are open")
		}
		c.script.mu.Unlock()
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestClose_does_not_wait_for_a_node_that_left_its_cluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &changing{script: newScript(), owner: "old"}
		limiter := limiterFrom(t, c, WithTimeout(time.Minute))
		c.add([]any{"silent"}, "")
		ctx, leave := context.WithCancel(context.Background())
		go func() { _, _ = limiter.Check(ctx, testRule().Of("a")) }()
		synctest.Wait()
		leave()
		c.move("new")
		limiter.x.refresh()
		synctest.Wait()
		began := time.Now()
		if err := limiter.Close(context.Background()); err != nil || time.Since(began) > 0 {
			t.Error("Close took", time.Since(began), err)
		}
	})
}

func TestSlot_map_that_never_arrives_holds_no_call_and_no_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		c := &changing{script: newScript(), load: func(context.Context) error {
			<-over
			return nil
		}}
		limiter := limiterFrom(t, c)
		began := time.Now()
		if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonConnection {
			t.Error(d)
		}
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Error("the call and Close took", took)
		}
	})
}

func TestCalls_that_wait_for_the_slot_map_have_a_bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		c := &changing{script: newScript()}
		c.replyAlways(allowed)
		c.load = func(context.Context) error {
			<-read
			c.move("node")
			return nil
		}
		limiter := limiterFrom(t, c, WithMaxInFlight(2), WithMaxWaiting(3))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if d := mustCheck(t, limiter, context.Background()); d.Source != SourceServer {
					t.Error(d)
				}
			})
		}
		synctest.Wait()
		if d := mustCheck(t, limiter, context.Background()); d.Reason != ReasonOverloaded {
			t.Error(d)
		}
		close(read)
		all.Wait()
		if err := limiter.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// assertEmpty fails the test if a node holds a call, a place, a slot or a reader.
func assertEmpty(t *testing.T, limiter *Limiter) {
	t.Helper()
	for _, n := range limiter.x.all() {
		n.mu.Lock()
		if n.pool.inFlight != 0 || n.busy.first != nil || n.pool.line.length != 0 ||
			n.pool.urgent.length != 0 || len(n.renewals)+len(n.ends) != 0 || n.readers != 0 ||
			n.looks != 0 {
			t.Errorf("%q: %d in flight, %d in line, %d urgent, %d slots, %d readers, %d looks",
				n.name, n.pool.inFlight, n.pool.line.length, n.pool.urgent.length,
				len(n.renewals)+len(n.ends), n.readers, n.looks)
		}
		n.mu.Unlock()
	}
}

func TestCancellation_at_any_moment_leaks_no_place(t *testing.T) {
	for name, opts := range map[string][]Option{
		"calls": nil, "few places": {WithMaxInFlight(3)}, "prefetch": {WithPrefetch(5)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, opts, func(t *testing.T, s *script, limiter *Limiter) {
				s.replyAlways(object{"delay_ms": 7.0, "reply": allowed})
				jobs := Must(Lease("jobs", 10, time.Minute))
				var all sync.WaitGroup
				for at := range 400 {
					left := time.Duration(at%23) * time.Millisecond
					all.Go(func() {
						ctx, stop := context.WithTimeoutCause(
							context.Background(), left, errors.New("enough"))
						defer stop()
						if at%2 == 0 {
							leaving, leave := context.WithCancel(context.Background())
							defer time.AfterFunc(left, leave).Stop()
							ctx = leaving
						}
						if at%3 > 0 {
							_, _ = limiter.Check(ctx, testRule().Of("a"))
							return
						}
						if permit, err := limiter.Lease(ctx, jobs.Of("a")); err == nil {
							permit.Release(ctx)
						}
					})
				}
				all.Wait()
				time.Sleep(10 * time.Second)
				assertEmpty(t, limiter)
			})
		})
	}
}
