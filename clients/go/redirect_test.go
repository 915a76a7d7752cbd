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

// moving is a cluster whose node "old" answers ASK, as the slot is moving to the node "new". The
// second call over a connection to it finds that it closed while it was idle.
type moving struct{ dials map[string]int }

func (m *moving) Dial(_ context.Context, node string) (Conn, error) {
	m.dials[node]++
	return &movingConn{node: node}, nil
}

func (m *moving) Node(string) (string, bool) { return "old", true }
func (m *moving) Primaries() []string        { return []string{"old", "new"} }
func (m *moving) Load(context.Context) error { return nil }

type movingConn struct {
	node string
	uses int
	last string
}

func (c *movingConn) Send(words []string) error {
	c.uses++
	if c.node != "old" && c.uses > 2 {
		return ErrNotSent
	}
	c.last = words[0]
	return nil
}

func (c *movingConn) Receive() (any, error) {
	switch {
	case c.node == "old":
		return nil, ServerError("ASK 1 new")
	case c.last == "ASKING":
		return "OK", nil
	}
	return []any{int64(1), int64(9), int64(8), int64(0), int64(1)}, nil
}

func (c *movingConn) Interrupt() {}

func (c *movingConn) Close() error { return nil }

func TestReplaces_an_idle_connection_of_a_redirection(t *testing.T) {
	dialer := &moving{dials: map[string]int{}}
	limiter, err := New(dialer)
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(context.Background())
	rule := Must(Fixed("api", 9, time.Hour))
	for range 2 {
		d, err := limiter.Check(context.Background(), rule.Of("a"))
		if err != nil || d.Source != SourceServer {
			t.Error(d, err)
		}
	}
	if dialer.dials["new"] != 2 {
		t.Error("dials:", dialer.dials)
	}
}

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

// unmapped is a cluster whose nodes do not answer with the slot map.
type unmapped struct{ moving }

func (*unmapped) Node(string) (string, bool) { return "", false }

func (*unmapped) Load(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestReading_of_the_slot_map_is_one_failure_for_all_callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := New(&unmapped{}, WithBreaker(2, time.Minute), WithLogErrors(false))
		if err != nil {
			t.Fatal(err)
		}
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
