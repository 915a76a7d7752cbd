package goredis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	throttle "redis-throttle.invalid/go"
)

// idleDefault is the default of go-redis for ConnMaxIdleTime.
const idleDefault = 30 * time.Minute

// commandKept is the largest command whose memory a connection keeps for the next one, in bytes.
const commandKept = 1 << 12

// conn is one connection. A client of go-redis logs in on it, and then keeps it without using it:
// calls are written and read here, with less work for each.
type conn struct {
	client *redis.Client
	wire   *wire
	// command is memory for the bytes of a command.
	command []byte
	// isTaken says whether the pool has the connection.
	isTaken atomic.Bool
	// isOpen says whether the login succeeded.
	isOpen atomic.Bool
	// isExpired says whether no further call may use it: the credentials of the login were
	// replaced.
	isExpired atomic.Bool
	// endsAt is the end of its life, unless it is zero. usedAt is the last call, zero before the
	// first. It is not used after it was idle for idleMax, unless that is below 0.
	endsAt, usedAt time.Time
	idleMax        time.Duration
}

// newConn returns a connection that has not logged in. The group has the functions of the program
// that run after its end.
func newConn(raw net.Conn, options *redis.Options, leaving *sync.WaitGroup) *conn {
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
			return nil, throttle.ErrNotSent
		}
		return c.wire, nil
	}
	if provider := options.StreamingCredentialsProvider; provider != nil {
		options.StreamingCredentialsProvider = renewals{provider, c, leaving}
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

// renewals passes the credentials that replace those of its login to a connection.
type renewals struct {
	auth.StreamingCredentialsProvider
	c       *conn
	leaving *sync.WaitGroup
}

// Subscribe returns the credentials as they are now. The end of the subscription, a function of the
// program that may wait or panic, runs by itself: connections close while a node is locked.
func (r renewals) Subscribe(
	auth.CredentialsListener,
) (auth.Credentials, auth.UnsubscribeFunc, error) {
	credentials, unsubscribe, err := r.StreamingCredentialsProvider.Subscribe(r)
	leave := func() error {
		r.leaving.Go(func() {
			defer func() {
				if problem := recover(); problem != nil {
					slog.Error("redis-throttle: a credentials provider panicked", "panic", problem)
				}
			}()
			if unsubscribe != nil {
				_ = unsubscribe()
			}
		})
		return nil
	}
	return credentials, leave, err
}

// OnNext ends the connection's use. The next one logs in with the new credentials.
func (r renewals) OnNext(auth.Credentials) { r.c.isExpired.Store(true) }

// OnError does nothing: the connection's credentials are valid until the server refuses them.
func (r renewals) OnError(error) {}

// open logs in. The reply to PING does not matter: a user may lack the right to it.
func (c *conn) open(ctx context.Context) error {
	// go-redis itself ends at the deadline only.
	stop := context.AfterFunc(ctx, func() { _ = c.wire.Close() })
	err := c.client.Ping(ctx).Err()
	var said redis.Error
	isReply := errors.As(err, &said)
	switch {
	case !stop():
		return fmt.Errorf("connected, not logged in: %w", ctx.Err())
	case isReply && !c.isOpen.Load():
		return throttle.ServerError(said.Error())
	case err != nil && !isReply:
		return fmt.Errorf("connected, not logged in: %w", err)
	}
	// The login had the deadline of the dial.
	return c.wire.SetDeadline(time.Time{})
}

// Send writes a command once.
func (c *conn) Send(words []string) error {
	now := time.Now()
	isOld := c.isExpired.Load() || !c.endsAt.IsZero() && now.After(c.endsAt)
	isIdle := c.idleMax > 0 && now.Sub(c.usedAt) > c.idleMax
	// A new one carries at least one call.
	isOver := !c.usedAt.IsZero() && (isOld || isIdle)
	// Bytes behind the last reply would be read as that of this command.
	if isOver || c.wire.hasMore() || c.wire.check() != nil {
		return throttle.ErrNotSent
	}
	c.usedAt = now
	bytes := appendCommand(c.command[:0], words)
	if cap(bytes) <= commandKept {
		c.command = bytes
	}
	_, err := c.wire.Write(bytes)
	return err
}

// Receive waits for the next reply.
func (c *conn) Receive() (any, error) { return c.wire.reply() }

// HasRead returns true: the login ends with a reply.
func (c *conn) HasRead() bool { return true }

// Interrupt ends the wait for a reply.
func (c *conn) Interrupt() { c.wire.interrupt() }

// Close closes the connection at once.
func (c *conn) Close() error {
	_ = c.wire.Close()
	return c.client.Close()
}
