package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// hanging returns options whose functions of a name ignore their context, and the number of those
// that run. They end when the test has.
func hanging(t *testing.T, name, addr string) (*redis.Options, *atomic.Int32) {
	ended, running := make(chan struct{}), &atomic.Int32{}
	t.Cleanup(func() { close(ended) })
	hang := func() error {
		running.Add(1)
		defer running.Add(-1)
		<-ended
		return errors.New("too late")
	}
	options := &redis.Options{Addr: addr}
	switch name {
	case "dialer":
		options.Dialer = func(context.Context, string, string) (net.Conn, error) {
			return nil, hang()
		}
	case "credentials":
		options.CredentialsProvider = func() (string, string) {
			_ = hang()
			return "", ""
		}
	case "OnConnect":
		options.OnConnect = func(context.Context, *redis.Conn) error { return hang() }
	}
	return options, running
}

func TestDecides_and_closes_while_a_function_of_the_program_hangs(t *testing.T) {
	server := start(t)
	for _, name := range []string{"dialer", "credentials", "OnConnect"} {
		options, _ := hanging(t, name, server.addr)
		limiter, err := throttle.New(Adapt(redis.NewClient(options)),
			throttle.WithTimeout(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		d := check(t, limiter, gcra(t, 1).Of("a"))
		if d.Reason != throttle.ReasonConnection {
			t.Error(name, d)
		}
		if err := limiter.Close(t.Context()); err != nil || time.Since(began) > 5*time.Second {
			t.Error(name, err, time.Since(began))
		}
	}
}

func TestHanging_dials_have_a_bound(t *testing.T) {
	options, running := hanging(t, "dialer", "")
	dialer := Adapt(redis.NewClient(options))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 * hangingMax {
		if _, err := dialer.Dial(ctx, ""); err == nil {
			t.Fatal("a dial that hangs")
		}
	}
	if all := running.Load(); all > hangingMax {
		t.Error(all, "dials hang")
	}
}

// The dialer of go-redis for TLS returns a nil *tls.Conn with its error, which is no nil net.Conn.
func TestAbandons_a_dial_that_fails_later(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(5 * time.Second)
			var none *tls.Conn
			return none, errors.New("the handshake timed out")
		},
	})
	defer rdb.Close()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		dialer := Adapt(rdb)
		if _, err := dialer.Dial(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if hang := dialer.(*server).dials.hanging.Load(); hang != 0 {
			t.Error(hang, "dials hang")
		}
	})
}

func TestEnds_each_dial_of_a_cluster_whose_tls_is_silent(t *testing.T) {
	silent := listen(t)
	dialer := Adapt(redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{silent.Addr().String()}, TLSConfig: &tls.Config{InsecureSkipVerify: true},
	})).(*cluster)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := dialer.Dial(ctx, silent.Addr().String()); err == nil {
		t.Error("a silent server replies")
	}
	live.Await(t, "the dial ends", func() bool { return dialer.dials.hanging.Load() == 0 })
}
