package goredis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// startCluster starts three primaries with a third of the slots each.
func startCluster(t *testing.T, args ...string) []*instance {
	t.Helper()
	ctx := context.Background()
	args = append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
	var all []*instance
	for at := range 3 {
		one := start(t, args...)
		all = append(all, one)
		// Nodes with one epoch take each other's slots until they have agreed on new ones.
		if err := one.rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", at+1).Err(); err != nil {
			t.Fatal(err)
		}
		first, last := at*5462, min(at*5462+5461, slotCount-1)
		if err := one.rdb.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(one.addr)
		if err := all[0].rdb.ClusterMeet(ctx, host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	live.Await(t, "the cluster forms", func() bool {
		for _, one := range all {
			info, err := one.rdb.ClusterInfo(ctx).Result()
			isKnown := strings.Contains(info, "cluster_known_nodes:3")
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !isKnown {
				return false
			}
		}
		return true
	})
	return all
}

func clusterClient(t *testing.T, seed *instance) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{seed.addr}})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestCluster(t *testing.T) {
	nodes := startCluster(t, live.Module(t)...)
	run := func(name string, test func(t *testing.T, nodes []*instance)) {
		t.Run(name, func(t *testing.T) { test(t, nodes) })
	}
	run("routes_calls", routesCalls)
	run("follows_a_slot_that_moves", followsASlot)
}

func routesCalls(t *testing.T, nodes []*instance) {
	rdb := clusterClient(t, nodes[0])
	limiter := limiterOf(t, rdb, patient)
	rule, day := gcra(t, 9), throttle.Must(throttle.Fixed("day", 100, 24*time.Hour))
	ctx := context.Background()
	for at := range 30 {
		subject := fmt.Sprint("user:", at)
		if d := check(t, limiter, rule.Of(subject)); d.Source != throttle.SourceServer {
			t.Fatal(d)
		}
		items := []throttle.Item{rule.Of(subject), day.Of("all")}
		d, err := limiter.CheckAll(ctx, items, throttle.Tag(subject))
		if err != nil || d.Source != throttle.SourceServer || len(d.Rows) != 2 {
			t.Fatal(d, err)
		}
		if d, err = limiter.CheckEach(ctx, items); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	tagged := limiterOf(t, rdb, patient, throttle.WithHashTag())
	items := []throttle.Item{rule.Of("user:1"), day.Of("user:1")}
	if d, err := tagged.CheckAll(ctx, items); err != nil || d.Source != throttle.SourceServer {
		t.Error(d, err)
	}
}

func TestLoads_the_library_on_all_primaries(t *testing.T) {
	nodes := startCluster(t)
	limiter := limiterOf(t, clusterClient(t, nodes[0]), patient)
	if d := check(t, limiter, gcra(t, 9).Of("a")); d.Source != throttle.SourceServer {
		t.Fatal(d)
	}
	all := redis.FunctionListQuery{}
	for _, one := range nodes {
		libraries, err := one.rdb.FunctionList(context.Background(), all).Result()
		if err != nil || len(libraries) != 1 {
			t.Errorf("%v, %v", libraries, err)
		}
	}
}

// nodeID returns the id of a node of a cluster.
func nodeID(t *testing.T, one *instance) string {
	t.Helper()
	id, err := one.rdb.Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func followsASlot(t *testing.T, nodes []*instance) {
	limiter := limiterOf(t, clusterClient(t, nodes[0]), patient)
	ctx := context.Background()
	item := gcra(t, 9).Of("a")
	check(t, limiter, item)
	slot := slotOf("rl:api:a")
	from, to := nodes[slot/5462], nodes[(slot/5462+1)%3]
	ids := []string{nodeID(t, from), nodeID(t, to)}
	setSlot := func(on *instance, args ...any) {
		words := append([]any{"CLUSTER", "SETSLOT", slot}, args...)
		if err := on.rdb.Do(ctx, words...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setSlot(to, "IMPORTING", ids[0])
	setSlot(from, "MIGRATING", ids[1])
	host, port, _ := net.SplitHostPort(to.addr)
	if err := from.rdb.Migrate(ctx, host, port, "rl:api:a", 0, 5*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	// The key is on the new node, and the slot still on the old one: it replies ASK.
	if d := check(t, limiter, item); d.Source != throttle.SourceServer || d.Remaining != 7 {
		t.Error(d)
	}
	setSlot(to, "NODE", ids[1])
	setSlot(from, "NODE", ids[1])
	if d := check(t, limiter, item); d.Source != throttle.SourceServer || d.Remaining != 6 {
		t.Error(d)
	}
}

func TestFinds_the_primary_through_a_sentinel(t *testing.T) {
	primary := start(t, live.Module(t)...)
	replica := start(t, live.Module(t)...)
	ctx := context.Background()
	host, port, _ := net.SplitHostPort(primary.addr)
	if err := replica.rdb.ReplicaOf(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	config := t.TempDir() + "/sentinel.conf"
	sentinel := startSentinel(t, config, primary.addr)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "main", SentinelAddrs: []string{sentinel.addr},
	})
	defer rdb.Close()
	limiter := limiterOf(t, rdb, patient, throttle.WithBreaker(5, 50*time.Millisecond))
	item := gcra(t, 1000).Of("a")
	if d := check(t, limiter, item); d.Source != throttle.SourceServer {
		t.Fatal(d)
	}
	live.Await(t, "a failover", func() bool {
		return sentinel.rdb.Do(ctx, "SENTINEL", "FAILOVER", "main").Err() == nil
	})
	live.Await(t, "a decision of the new primary", func() bool {
		d := check(t, limiter, item)
		isPrimary := strings.Contains(replica.rdb.Info(ctx, "replication").Val(), "role:master")
		return d.Source == throttle.SourceServer && isPrimary
	})
}

func TestReads_slot_maps(t *testing.T) {
	good := []any{
		[]any{int64(100), int64(16383), []any{"", int64(7001), "id"}},
		[]any{int64(0), int64(99), []any{"::1", int64(7000)}, []any{"10.0.0.9", int64(1)}},
	}
	slots, err := readSlots(good, "10.0.0.1:7009")
	if err != nil || slots[0].primary != "[::1]:7000" || slots[1].primary != "10.0.0.1:7001" {
		t.Error(slots, err)
	}
	for _, odd := range []any{
		nil, "OK", []any{}, []any{int64(1)}, []any{[]any{int64(1), int64(2), "a"}},
		[]any{[]any{"0", int64(2), []any{"h", int64(1)}}},
		[]any{[]any{int64(0), int64(2), []any{"h", "1"}}},
	} {
		if slots, err := readSlots(odd, "h:1"); err == nil {
			t.Errorf("%v: %v", odd, slots)
		}
	}
	// The values are those of CLUSTER KEYSLOT.
	for key, slot := range map[string]int{"123456789": 12739, "{user}:a": 5474, "{}a": 10875} {
		if got := slotOf(key); got != slot {
			t.Errorf("%s: %d", key, got)
		}
	}
}
