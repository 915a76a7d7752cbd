package grpcthrottle_test

import (
	"context"
	"log"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
	"redis-throttle.invalid/go/grpcthrottle"
)

// Each tenant has 100 calls per minute, of which 5 at a time. Health checks are not limited.
func Example() {
	limiter, err := throttle.New(goredis.Adapt(redis.NewClient(&redis.Options{})))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = limiter.Close(context.Background()) }()
	tenant := func(ctx context.Context, _ grpcthrottle.Call) string {
		return strings.Join(metadata.ValueFromIncomingContext(ctx, "tenant"), "")
	}
	isHealth := func(_ context.Context, call grpcthrottle.Call) bool {
		return strings.HasPrefix(call.Method, "/grpc.health.v1.Health/")
	}
	limits, err := grpcthrottle.New(limiter, tenant, []*throttle.Rule{
		throttle.Must(throttle.GCRA("calls", 100, 100, time.Minute)),
		throttle.Must(throttle.Lease("running", 5, 30*time.Second)),
	}, grpcthrottle.Skip(isHealth))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
	listener, err := net.Listen("tcp", "127.0.0.1:9000")
	if err != nil {
		log.Fatal(err)
	}
	log.Print(server.Serve(listener))
}
