// Package goredis lets a limiter dial with go-redis, version 9:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	limiter, err := throttle.New(goredis.Adapt(rdb))
//
// The limiter opens connections of its own, with the configuration of the program's client: its
// address, dialer, TLS, credentials, OnConnect and database. It never sends over the program's
// connections and does not change or close the program's client. go-redis repeats a call up to
// three times by default and lets it take 5 seconds. Over an adapter each call is sent once and
// ends at the limiter's deadline. Hooks, limiters, caches and notifications of the program's client
// are not copied. The program's MaxRetries, time-outs and pool sizes have no effect here. A dialer,
// a credentials provider or an OnConnect that ignores its context runs on until it returns, also
// after the limiter's Close; that of go-redis for TLS does, until its DialTimeout.
//
// Sentinel works through the dialer of redis.NewFailoverClient, which looks up the primary at each
// dial.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	throttle "redis-throttle.invalid/go"
)

// Adapt returns a dialer with the configuration of a client: a *redis.Client, also one of
// redis.NewFailoverClient, or a *redis.ClusterClient. Others are refused by [throttle.New]. A Ring
// is, because it moves keys to other servers when one is down, and a limit would begin again.
func Adapt(client redis.UniversalClient) throttle.Dialer {
	switch known := client.(type) {
	case *redis.Client:
		if known == nil {
			return refuse("a client, not a nil *redis.Client")
		}
		return &server{options: known.Options()}
	case *redis.ClusterClient:
		if known == nil {
			return refuse("a client, not a nil *redis.ClusterClient")
		}
		return newCluster(known.Options())
	case *redis.Ring:
		return refuse("no Ring, which moves the keys of a server that is down, so that their " +
			"limits begin again: use a cluster, or one limiter for each server")
	}
	return refuse(fmt.Sprintf("a *redis.Client or a *redis.ClusterClient, not %T", client))
}

func refuse(expected string) throttle.Dialer {
	return refused{&throttle.InvalidArgument{Argument: "client", Expected: expected}}
}

// refused is the dialer of a client that cannot be used.
type refused struct{ err error }

// Err returns why, for throttle.New.
func (r refused) Err() error { return r.err }

// Dial returns the same error.
func (r refused) Dial(context.Context, string) (throttle.Conn, error) { return nil, r.err }

// server dials a single server, or the primary that a sentinel names.
type server struct {
	options *redis.Options
	dials   dials
}

// Close waits for the ends of subscriptions.
func (s *server) Close() error {
	s.dials.leaving.Wait()
	return nil
}

// Dial opens a connection.
func (s *server) Dial(ctx context.Context, _ string) (throttle.Conn, error) {
	options := &redis.Options{
		Network: s.options.Network, Addr: s.options.Addr, ClientName: s.options.ClientName,
		Dialer: s.options.Dialer, OnConnect: s.options.OnConnect,
		Username: s.options.Username, Password: s.options.Password,
		CredentialsProvider:          s.options.CredentialsProvider,
		CredentialsProviderContext:   s.options.CredentialsProviderContext,
		StreamingCredentialsProvider: s.options.StreamingCredentialsProvider,
		DB:                           s.options.DB, TLSConfig: s.options.TLSConfig,
		ConnMaxIdleTime: s.options.ConnMaxIdleTime, ConnMaxLifetime: s.options.ConnMaxLifetime,
		ConnMaxLifetimeJitter: s.options.ConnMaxLifetimeJitter,
		DisableIdentity:       s.options.DisableIdentity, IdentitySuffix: s.options.IdentitySuffix,
	}
	return s.dials.dial(ctx, options)
}

// hangingMax is the maximum number of dials of an adapter that go on after their deadline.
const hangingMax = 64

var errHanging = fmt.Errorf("%d dials hang", hangingMax)

// dials are the dials of an adapter.
type dials struct {
	// hanging is the number of those that go on after their deadline.
	hanging atomic.Int32
	// leaving has the ends of subscriptions to credentials that are under way.
	leaving sync.WaitGroup
}

// dial returns the result of a dial, or the error of the context if it ends first: a function of
// the program may ignore its context, and that of go-redis does for TLS.
func (d *dials) dial(ctx context.Context, options *redis.Options) (throttle.Conn, error) {
	if d.hanging.Load() >= hangingMax {
		return nil, errHanging
	}
	type dialled struct {
		conn throttle.Conn
		err  error
	}
	done := make(chan dialled)
	go func() {
		conn, err := open(ctx, options, &d.leaving)
		select {
		case done <- dialled{conn, err}:
			return
		case <-ctx.Done():
		}
		if err == nil {
			_ = conn.Close()
		}
		d.hanging.Add(-1)
	}()
	select {
	case result := <-done:
		return result.conn, result.err
	case <-ctx.Done():
		// The goroutine above has no receiver, so it counts itself down.
		d.hanging.Add(1)
		return nil, ctx.Err()
	}
}

// open opens a connection with the options of a program. A panic of its functions is an error.
func open(
	ctx context.Context, options *redis.Options, leaving *sync.WaitGroup,
) (opened throttle.Conn, err error) {
	var c *conn
	defer func() {
		if problem := recover(); problem != nil {
			opened, err = nil, fmt.Errorf("the dial panicked: %v", problem)
		}
		if err != nil && c != nil {
			_ = c.Close()
		}
	}()
	dialer := options.Dialer
	if dialer == nil {
		// It ignores the context for TLS. That of a client of one server has the client's own.
		if deadline, ok := ctx.Deadline(); ok {
			options.DialTimeout = max(time.Millisecond, time.Until(deadline))
		}
		dialer = redis.NewDialer(options)
	}
	network := options.Network
	if network == "" {
		network = "tcp"
	}
	// With an error, that of go-redis for TLS returns a connection that is not nil, but has none.
	raw, err := dialer(ctx, network, options.Addr)
	switch {
	case err != nil:
		return nil, err
	case raw == nil:
		return nil, errors.New("the dialer returned no connection")
	}
	c = newConn(raw, options, leaving)
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// ownOptions sets the options of a client that has one connection, which carries each command once.
func ownOptions(o *redis.Options) {
	o.Protocol = 2
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	// The context of a call bounds it.
	o.ReadTimeout, o.WriteTimeout = -1, -1
	// It has one connection. A pool whose dials fail as often as its size would dial by itself.
	o.PoolSize = 8
	o.MinIdleConns = 0
	// The limits of its life are checked by Do: the pool would log a dial that fails.
	o.ConnMaxIdleTime, o.ConnMaxLifetime = -1, 0
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
