package goredis

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
)

// idleDefault is the default of go-redis for ConnMaxIdleTime.
const idleDefault = 30 * time.Minute

// conn is one connection: a client of go-redis whose pool can dial only once.
type conn struct {
	client *redis.Client
	wire   *wire
	// isTaken says whether the pool has the connection.
	isTaken atomic.Bool
	// isOpen says whether the login succeeded.
	isOpen atomic.Bool
	// endsAt is the end of its life, unless it is zero. usedAt is the last call, zero before the
	// first. It is not used after it was idle for idleMax, unless that is below 0.
	endsAt, usedAt time.Time
	idleMax        time.Duration
	// hasRedialled says whether the pool dropped the connection and wanted another.
	hasRedialled atomic.Bool
}

func newConn(raw net.Conn, options *redis.Options) *conn {
	c := &conn{wire: newWire(raw), idleMax: options.ConnMaxIdleTime}
	if c.idleMax == 0 {
		c.idleMax = idleDefault
	}
	if life := options.ConnMaxLifetime; life > 0 {
		jitter := min(life, options.ConnMaxLifetimeJitter)
		c.endsAt = time.Now().Add(life + time.Duration(float64(jitter)*(2*rand.Float64()-1)))
	}
	ownOptions(options)
	options.Dialer = func(context.Context, string, string) (net.Conn, error) {
		if c.isTaken.Swap(true) {
			c.hasRedialled.Store(true)
			return nil, throttle.ErrNotSent
		}
		return c.wire, nil
	}
	connected := options.OnConnect
	options.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if connected != nil {
			if err := connected(ctx, cn); err != nil {
				return err
			}
		}
		c.isOpen.Store(true)
		return nil
	}
	c.client = redis.NewClient(options)
	return c
}

// open logs in. The reply to PING does not matter: a user may lack the right to it.
func (c *conn) open(ctx context.Context) error {
	_, err := c.process(ctx, []string{"PING"})
	var said throttle.ServerError
	if c.isOpen.Load() && errors.As(err, &said) {
		return nil
	}
	return err
}

// Do sends a command once.
func (c *conn) Do(ctx context.Context, words []string) (any, error) {
	now := time.Now()
	isOld := !c.endsAt.IsZero() && now.After(c.endsAt)
	isIdle := c.idleMax > 0 && now.Sub(c.usedAt) > c.idleMax
	// A new one carries at least one call.
	isOver := !c.usedAt.IsZero() && (isOld || isIdle)
	if isOver || c.wire.check() != nil {
		return nil, throttle.ErrNotSent
	}
	c.usedAt = now
	return c.process(ctx, words)
}

func (c *conn) process(ctx context.Context, words []string) (any, error) {
	args := make([]any, len(words))
	for at, word := range words {
		args[at] = word
	}
	// The deadline is that of the socket. Only a cancellation must interrupt it.
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			_ = c.wire.Close()
		}
	})
	defer stop()
	cmd := redis.NewCmd(ctx, args...)
	err := c.client.Process(ctx, cmd)
	var said redis.Error
	switch {
	case err == nil:
		return cmd.Val(), nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case c.hasRedialled.Load():
		return nil, throttle.ErrNotSent
	case errors.As(err, &said):
		return nil, throttle.ServerError(said.Error())
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, err
}

// Close closes the connection at once.
func (c *conn) Close() error {
	_ = c.wire.Close()
	return c.client.Close()
}
