package grpcthrottle

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	throttle "redis-throttle.invalid/go"
)

// ByPeer returns a key that is the client's address: that of the connection or, behind a trusted
// proxy, that of the x-forwarded-for metadata. See [throttle.Proxies.Subject].
func ByPeer(proxies throttle.Proxies) Key {
	return func(ctx context.Context, _ Call) string {
		from, ok := peer.FromContext(ctx)
		if !ok || from.Addr == nil {
			return ""
		}
		address := from.Addr.String()
		if from.Addr.Network() == "unix" {
			address = ""
		}
		forwarded := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for")
		subject, _ := proxies.Subject(address, forwarded)
		return subject
	}
}
