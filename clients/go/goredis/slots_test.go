package goredis

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
)

func TestReads_the_slot_map_although_most_nodes_are_silent(t *testing.T) {
	server := start(t, "--cluster-enabled", "yes")
	err := server.rdb.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, slotCount-1).Err()
	if err != nil {
		t.Fatal(err)
	}
	addrs := []string{server.addr}
	for range 12 {
		silent := listen(t)
		t.Cleanup(func() { _ = silent.Close() })
		addrs = append(addrs, silent.Addr().String())
	}
	for range 5 {
		dialer := newCluster(&redis.ClusterOptions{Addrs: slices.Clone(addrs)})
		if err := dialer.Load(t.Context()); err != nil {
			t.Error(err)
		}
		if err := dialer.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestDecides_and_closes_while_ClusterSlots_hangs(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			<-over
			return nil, context.Canceled
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	dialer := Adapt(rdb)
	limiter, err := throttle.New(dialer, throttle.WithTimeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	d := check(t, limiter, gcra(t, 1).Of("a"))
	if d.Reason != throttle.ReasonConnection {
		t.Error(d)
	}
	if err := limiter.Close(t.Context()); err != nil {
		t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- dialer.(*cluster).Close() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("Close waits for ClusterSlots")
	}
}
