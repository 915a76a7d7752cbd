package grpcthrottle_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/grpcthrottle"
)

func TestKeys_a_call_by_the_address_of_its_client(t *testing.T) {
	trusted, err := throttle.TrustProxies("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	key := grpcthrottle.ByPeer(trusted)
	at := func(addr net.Addr) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{Addr: addr})
	}
	behind := metadata.NewIncomingContext(at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9}),
		metadata.Pairs("x-forwarded-for", "203.0.113.7"))
	for subject, ctx := range map[string]context.Context{
		"192.0.2.1":   at(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9}),
		"203.0.113.7": behind,
	} {
		if got := key(ctx, grpcthrottle.Call{}); got != subject {
			t.Errorf("%q, not %q", got, subject)
		}
	}
	if got := key(t.Context(), grpcthrottle.Call{}); got != "" {
		t.Errorf("%q without a peer", got)
	}
	for _, addr := range []net.Addr{
		&net.UnixAddr{Net: "unix", Name: "@"},
		&net.UnixAddr{Net: "unix", Name: "10.0.0.1:1"},
		bufconn.Listen(1).Addr(),
	} {
		if got := key(at(addr), grpcthrottle.Call{}); got != "peer:" {
			t.Errorf("%q of the peer %q, which has no address", got, addr)
		}
	}
}

func TestKeys_a_call_by_the_metadata_of_several_names(t *testing.T) {
	key := grpcthrottle.ByMetadata("x-tenant", "X-Api-Key")
	for subject, pairs := range map[string][]string{
		"a|b%7Cc":  {"x-tenant", "a", "x-api-key", "b|c"},
		"a%7Cb|c":  {"x-tenant", "a|b", "x-api-key", "c"},
		"100%25|k": {"x-tenant", "100%", "x-api-key", "k"},
		"":         {"x-tenant", "a"},
	} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
		if got := key(ctx, grpcthrottle.Call{}); got != subject {
			t.Errorf("%q, not %q", got, subject)
		}
	}
	twice := metadata.Pairs("x-tenant", "a", "x-api-key", "c", "x-api-key", "d")
	ctx := metadata.NewIncomingContext(t.Context(), twice)
	if got := key(ctx, grpcthrottle.Call{}); got != "" {
		t.Errorf("%q of a name with two values", got)
	}
	if grpcthrottle.ByMetadata() != nil || grpcthrottle.ByMetadata("a", "") != nil {
		t.Error("a key of no name")
	}
}
