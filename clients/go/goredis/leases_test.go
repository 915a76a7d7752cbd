package goredis

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// held is a dialer that holds the replies to releases until its gate is closed.
type held struct {
	throttle.Dialer
	gate chan struct{}

	mu sync.Mutex
	// sent has the number of commands by their first word.
	sent map[string]int
}

func holdReleases(dialer throttle.Dialer) *held {
	return &held{Dialer: dialer, gate: make(chan struct{}), sent: map[string]int{}}
}

func (h *held) Dial(ctx context.Context, node string) (throttle.Conn, error) {
	conn, err := h.Dialer.Dial(ctx, node)
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: conn, held: h}, nil
}

// count returns the number of commands with this first word.
func (h *held) count(word string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent[word]
}

type heldConn struct {
	throttle.Conn
	held      *held
	isRelease bool
}

func (c *heldConn) Send(words []string) error {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	c.isRelease = words[0] == "RL.RELEASE"
	c.held.sent[words[0]]++
	return c.Conn.Send(words)
}

func (c *heldConn) Receive() (any, error) {
	if c.isRelease {
		<-c.held.gate
	}
	return c.Conn.Receive()
}

func TestReleases_in_flight_and_in_line_delay_no_renewal_and_Close_awaits_them(t *testing.T) {
	const slots, releases = 32, 48
	server := start(t, live.Module(t)...)
	dialer := holdReleases(Adapt(server.rdb))
	limiter := limiterFrom(t, dialer, patient, throttle.WithSilence(time.Minute))
	open := sync.OnceFunc(func() { close(dialer.gate) })
	t.Cleanup(open)
	short := throttle.Must(throttle.Lease("short", releases, time.Hour))
	ctx := t.Context()
	var permits []*throttle.Permit
	for range releases {
		permit, err := limiter.Lease(ctx, short.Of("a"))
		if err != nil {
			t.Fatal(err)
		}
		permits = append(permits, permit)
	}
	for _, permit := range permits {
		permit.ReleaseLater()
	}
	live.Await(t, "all slots of ends are taken", func() bool {
		return dialer.count("RL.RELEASE") >= slots
	})
	long := throttle.Must(throttle.Lease("long", 1, 3*time.Second))
	month := throttle.Must(throttle.Quota("month", 10, throttle.Month))
	for _, item := range []throttle.Item{long.Of("a"), month.Of("a").Reserve(1, 3*time.Second)} {
		if _, err := limiter.Admit(ctx, []throttle.Item{item}); err != nil {
			t.Fatal(err)
		}
	}
	live.Await(t, "the lease and the reservation are renewed", func() bool {
		return dialer.count("RL.RENEW") > 0 && dialer.count("RL.RESERVE") > 0
	})
	if sent := dialer.count("RL.RELEASE"); sent != slots {
		t.Errorf("%d releases are in flight", sent)
	}
	closed := make(chan error, 1)
	go func() { closed <- limiter.Close(ctx) }()
	live.Await(t, "Close begins", func() bool { return isClosed(limiter, short.Of("a")) })
	open()
	if err := <-closed; err != nil || server.rdb.DBSize(ctx).Val() != 0 {
		t.Errorf("%v, %+v", err, limiter.Counters())
	}
}

// isClosed says whether Close has begun.
func isClosed(limiter *throttle.Limiter, item throttle.Item) bool {
	_, err := limiter.Peek(context.Background(), item)
	return errors.Is(err, throttle.ErrClosed)
}

func TestHTTP_response_does_not_wait_for_a_release_but_Close_does(t *testing.T) {
	for name, opts := range leases(t) {
		t.Run(name, func(t *testing.T) {
			var s *site
			s = newSite(t, func(http.ResponseWriter, *http.Request) {
				s.redis.rdb.Do(context.Background(), "CLIENT", "PAUSE", "60000", "WRITE")
			}, opts...)
			if response, _ := s.get(t); response.StatusCode != 200 || s.areFree() {
				t.Fatal("after the release:", response.Status)
			}
			closed := make(chan error, 1)
			go func() { closed <- s.limiter.Close(context.Background()) }()
			live.Await(t, "Close begins", func() bool {
				return isClosed(s.limiter, gcra(t, 100).Of("a"))
			})
			s.redis.rdb.Do(t.Context(), "CLIENT", "UNPAUSE")
			if err := <-closed; err != nil || !s.areFree() || s.limiter.Counters().Unsettled != 0 {
				t.Errorf("%v, %+v", err, s.limiter.Counters())
			}
		})
	}
}
