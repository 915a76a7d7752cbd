package grpcthrottle_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/live"
)

// abort makes calls and resets their connections, until the context ends.
func abort(ctx context.Context, addr string) (calls int) {
	for ctx.Err() == nil && calls < 1000 {
		var opened atomic.Pointer[net.TCPConn]
		conn, err := grpc.NewClient("passthrough:"+addr,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
				one, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
				if err == nil {
					opened.Store(one.(*net.TCPConn))
				}
				return one, err
			}))
		if err != nil {
			return calls
		}
		calls++
		calling := metadata.AppendToOutgoingContext(ctx, "tenant", "bad")
		calling, stop := context.WithTimeout(calling, 5*time.Millisecond)
		_, _ = grpc_health_v1.NewHealthClient(conn).Check(calling, &request{})
		stop()
		if socket := opened.Load(); socket != nil {
			_ = socket.SetLinger(0)
			_ = socket.Close()
		}
		_ = conn.Close()
	}
	return calls
}

func TestAborted_calls_do_not_open_the_limits_of_others(t *testing.T) {
	const calls, limit = 60, 40
	slow := live.Delay(t, live.Start(t), 20*time.Millisecond)
	limiter := limiterAt(t, slow, throttle.WithTimeout(time.Second),
		throttle.WithSilence(400*time.Millisecond))
	limits := limitsOf(t, limiter, []*throttle.Rule{hourly(limit)})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary))
	grpc_health_v1.RegisterHealthServer(server, &service{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:"+listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	storming, stop := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	var aborted atomic.Int64
	for range 8 {
		storm.Go(func() { aborted.Add(int64(abort(storming, listener.Addr().String()))) })
	}
	served := 0
	for range calls {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(from(t, "good"), &request{})
		switch status.Code(err) {
		case codes.OK:
			served++
		case codes.ResourceExhausted:
		default:
			t.Error(err)
		}
	}
	stop()
	storm.Wait()
	counters := limiter.Counters()
	if served != limit || counters.Degraded > 0 || aborted.Load() < 20 {
		t.Errorf("%d served, %d aborted, %+v", served, aborted.Load(), counters)
	}
}

func TestLimits_a_client_that_leaves_its_calls(t *testing.T) {
	const calls, limit = 60, 10
	ok := throttle.CountIf(func(status int) bool { return status == 200 })
	var runs atomic.Int64
	came := make(chan struct{})
	serving := func(ctx context.Context) error {
		runs.Add(1)
		came <- struct{}{}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	limits := limitsOf(t, liveLimiter(t), []*throttle.Rule{hourly(limit, throttle.WithCount(ok))})
	client := serve(t, limits, &service{
		check: serving, watch: func(stream updates) error { return serving(stream.Context()) },
	})
	for name, call := range map[string]func(context.Context) error{
		"unary": func(ctx context.Context) error {
			_, err := client.Check(ctx, &request{})
			return err
		},
		"stream": func(ctx context.Context) error {
			stream, err := client.Watch(ctx, &request{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		runs.Store(0)
		for range calls {
			ctx, leave := context.WithCancel(from(t, name))
			ended := make(chan error, 1)
			go func() { ended <- call(ctx) }()
			select {
			case <-came:
				leave()
				<-ended
			case <-ended:
				leave()
			}
		}
		if served := runs.Load(); served != limit {
			t.Error(name, served, "of", calls, "were served")
		}
	}
}
