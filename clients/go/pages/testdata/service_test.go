package service

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/goredis"
)

func TestDenies_the_eleventh_call(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7777"})
	limiter, err := throttle.New(goredis.Adapt(rdb))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close(t.Context())
	server, err := New(limiter)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(listener.Addr().String(), plain)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme")
	var got []codes.Code
	for range 11 {
		_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		got = append(got, status.Code(err))
	}
	want := append(slices.Repeat([]codes.Code{codes.OK}, 10), codes.ResourceExhausted)
	if !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	retry, ok := status.Convert(err).Details()[0].(*errdetails.RetryInfo)
	if !ok || retry.RetryDelay.AsDuration() > 6*time.Second {
		t.Error(retry)
	}
	_, err = client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
