package goredis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
)

const (
	// readers is the number of nodes from which the slot map is read at once. Without a reply for
	// readPause, it is read from one more.
	readers   = 3
	readPause = 50 * time.Millisecond
	// patience is the longest time of reading the slot map.
	patience = 2 * time.Second
)

// cluster dials the primaries of a cluster. It reads the slot map over connections of its own: a
// cluster client of go-redis would keep calling a node that is silent.
type cluster struct {
	options *redis.ClusterOptions
	dials   dials
	ctx     context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	slots   []slotRange
	reading *reading
	group   sync.WaitGroup
}

// slotRange is a range of slots, and the address of its primary.
type slotRange struct {
	start, end int
	primary    string
}

// reading is one reading of the slot map, for all callers that wait.
type reading struct {
	ended chan struct{}
	err   error
}

func newCluster(options *redis.ClusterOptions) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	return &cluster{options: options, ctx: ctx, stop: stop}
}

// Dial opens a connection to a node.
func (c *cluster) Dial(ctx context.Context, node string) (throttle.Conn, error) {
	o := c.options
	options := &redis.Options{
		Addr: node, ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext:   o.CredentialsProviderContext,
		StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		TLSConfig:                    o.TLSConfig, ConnMaxIdleTime: o.ConnMaxIdleTime,
		ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		DisableIdentity: o.DisableIdentity, IdentitySuffix: o.IdentitySuffix,
	}
	return c.dials.dial(ctx, options)
}

// Node returns the primary of a key.
func (c *cluster) Node(key string) (string, bool) {
	slot := slotOf(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := slices.BinarySearchFunc(c.slots, slot, func(one slotRange, slot int) int {
		return one.end - slot
	})
	if at == len(c.slots) || slot < c.slots[at].start {
		return "", false
	}
	return c.slots[at].primary, true
}

// Primaries returns the addresses of all primaries.
func (c *cluster) Primaries() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, one := range c.slots {
		all = append(all, one.primary)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Load reads the slot map. All callers that wait share one reading.
func (c *cluster) Load(ctx context.Context) error {
	c.mu.Lock()
	r := c.reading
	if r == nil {
		if err := c.ctx.Err(); err != nil {
			c.mu.Unlock()
			return err
		}
		r = &reading{ended: make(chan struct{})}
		c.reading = r
		c.group.Go(func() { c.read(r) })
	}
	c.mu.Unlock()
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read reads the slot map from any node.
func (c *cluster) read(r *reading) {
	ctx, stop := context.WithTimeout(c.ctx, patience)
	defer stop()
	slots, err := c.slotsFromAny(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.slots = slots
	}
	c.reading, r.err = nil, err
	close(r.ended)
}

// Close ends a reading.
func (c *cluster) Close() error {
	c.stop()
	c.group.Wait()
	c.dials.leaving.Wait()
	return nil
}

// slotsFromAny returns the first slot map that a node replies with.
func (c *cluster) slotsFromAny(ctx context.Context) ([]slotRange, error) {
	if c.options.ClusterSlots != nil {
		given, err := c.given(ctx)
		return rangesOf(given), err
	}
	nodes := append(c.Primaries(), c.options.Addrs...)
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		slots []slotRange
		err   error
	}
	results := make(chan result, len(nodes))
	var all sync.WaitGroup
	defer all.Wait()
	started := 0
	startNext := func() {
		if started < len(nodes) {
			node := nodes[started]
			started++
			all.Go(func() {
				slots, err := c.slotsFrom(ctx, node)
				results <- result{slots, err}
			})
		}
	}
	for range readers {
		startNext()
	}
	// Some nodes may be silent.
	more := time.NewTicker(readPause)
	defer more.Stop()
	err := errors.New("the cluster client has no address")
	for ended := 0; ended < len(nodes); {
		select {
		case <-more.C:
			startNext()
		case one := <-results:
			if one.err == nil {
				stop()
				return one.slots, nil
			}
			var said throttle.ServerError
			if !errors.As(err, &said) {
				err = one.err
			}
			ended++
			startNext()
		}
	}
	return nil, err
}

// given returns the slots of the program's function, or the error of the context, which it may
// ignore. If it panics, that is an error.
func (c *cluster) given(ctx context.Context) ([]redis.ClusterSlot, error) {
	if c.dials.hanging.Add(1) > hangingMax {
		c.dials.hanging.Add(-1)
		return nil, errHanging
	}
	type result struct {
		slots []redis.ClusterSlot
		err   error
	}
	ended := make(chan result, 1)
	go func() {
		defer c.dials.hanging.Add(-1)
		var one result
		defer func() {
			if problem := recover(); problem != nil {
				one.err = fmt.Errorf("ClusterSlots panicked: %v", problem)
			}
			ended <- one
		}()
		one.slots, one.err = c.options.ClusterSlots(ctx)
	}()
	select {
	case one := <-ended:
		return one.slots, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slotsFrom reads the slot map from a node.
func (c *cluster) slotsFrom(ctx context.Context, node string) ([]slotRange, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := c.Dial(ctx, node)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	reply, err := send(ctx, conn, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	return readSlots(reply, node)
}

// send sends a command once and returns its reply. The end of the context closes the connection.
func send(ctx context.Context, conn throttle.Conn, words ...string) (any, error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := conn.Send(words); err != nil {
		return nil, err
	}
	return conn.Receive()
}

// rangesOf returns the slots that a function of the program returned.
func rangesOf(given []redis.ClusterSlot) []slotRange {
	var all []slotRange
	for _, one := range given {
		if len(one.Nodes) > 0 {
			all = append(all, slotRange{one.Start, one.End, one.Nodes[0].Addr})
		}
	}
	return sorted(all)
}

func sorted(all []slotRange) []slotRange {
	slices.SortFunc(all, func(one, other slotRange) int { return one.start - other.start })
	return all
}

// readSlots reads the reply of CLUSTER SLOTS. A node without a host is the one that replied.
func readSlots(reply any, from string) ([]slotRange, error) {
	odd := errors.New("the reply of CLUSTER SLOTS is not a slot map")
	rows, _ := reply.([]any)
	var all []slotRange
	for _, row := range rows {
		fields, _ := row.([]any)
		if len(fields) < 3 {
			return nil, odd
		}
		start, isStart := fields[0].(int64)
		end, isEnd := fields[1].(int64)
		node, _ := fields[2].([]any)
		if !isStart || !isEnd || len(node) < 2 {
			return nil, odd
		}
		host, _ := node[0].(string)
		port, isPort := node[1].(int64)
		if !isPort {
			return nil, odd
		}
		if host == "" || host == "?" {
			host, _, _ = net.SplitHostPort(from)
		}
		primary := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		all = append(all, slotRange{int(start), int(end), primary})
	}
	if len(all) == 0 {
		return nil, odd
	}
	return sorted(all), nil
}

const slotCount = 16384

// slotOf returns the slot of a key in a cluster: of the text in its first braces, or of the key.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % slotCount
}

// crc16 returns the CRC-16/XMODEM of a text.
func crc16(text string) uint16 {
	const polynomial = 0x1021
	var crc uint16
	for _, c := range []byte(text) {
		crc ^= uint16(c) << 8
		for range 8 {
			isSet := crc&0x8000 != 0
			crc <<= 1
			if isSet {
				crc ^= polynomial
			}
		}
	}
	return crc
}
