package grpcthrottle_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
	"redis-throttle.invalid/go/grpcthrottle"
	"redis-throttle.invalid/go/internal/live"
)

type (
	health   = grpc_health_v1.HealthServer
	request  = grpc_health_v1.HealthCheckRequest
	response = grpc_health_v1.HealthCheckResponse
	updates  = grpc_health_v1.Health_WatchServer
)

// service is a service of a unary call and a stream.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	check func(context.Context) error
	watch func(updates) error
}

func (s *service) Check(ctx context.Context, _ *request) (*response, error) {
	if s.check == nil {
		return &response{}, nil
	}
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return &response{}, nil
}

func (s *service) Watch(_ *request, stream updates) error { return s.watch(stream) }

// serve serves a service in memory, with limits between outer interceptors and its handlers.
func serve(
	t *testing.T, limits *grpcthrottle.Limits, handlers health,
	outer ...grpc.UnaryServerInterceptor,
) grpc_health_v1.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(append(outer, limits.Unary)...),
		grpc.ChainStreamInterceptor(limits.Stream))
	grpc_health_v1.RegisterHealthServer(server, handlers)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// limiterAt returns a limiter of a server, closed with the test.
func limiterAt(t *testing.T, addr string, options ...throttle.Option) *throttle.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	options = append([]throttle.Option{throttle.WithTimeout(time.Minute)}, options...)
	limiter, err := throttle.New(goredis.Adapt(rdb), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = limiter.Close(context.Background())
		_ = rdb.Close()
	})
	return limiter
}

// liveLimiter returns a limiter of a server with the module.
func liveLimiter(t *testing.T, options ...throttle.Option) *throttle.Limiter {
	t.Helper()
	return limiterAt(t, live.Start(t), options...)
}

// tenant is the subject of the tests.
func tenant(ctx context.Context, _ grpcthrottle.Call) string {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "tenant") {
		return value
	}
	return ""
}

// limitsOf returns limits with the subject of the metadata.
func limitsOf(
	t *testing.T, limiter *throttle.Limiter, rules []*throttle.Rule, opts ...grpcthrottle.Option,
) *grpcthrottle.Limits {
	t.Helper()
	limits, err := grpcthrottle.New(limiter, tenant, rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// from returns the context of a client's call.
func from(t *testing.T, tenant string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "tenant", tenant)
}

// isFree returns true if a lease would be given: middleware releases in the background.
func isFree(t *testing.T, limiter *throttle.Limiter, runs *throttle.Rule) bool {
	t.Helper()
	d, err := limiter.Peek(t.Context(), runs.Of("acme"))
	if err != nil {
		t.Fatal(err)
	}
	return d.Allowed
}
