package grpcthrottle

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	throttle "redis-throttle.invalid/go"
	"redis-throttle.invalid/go/internal/web"
)

// ByMetadata returns a key of one or more names of metadata, such as ByMetadata("x-tenant",
// "x-api-key"). The values are joined by a bar; in each, % becomes %25 and a bar %7C, so that other
// values are never the same subject. A call whose metadata lacks one, or has an empty one or
// several values of it, has no subject. Without names, or with an empty one, the key is nil, which
// [New] refuses.
func ByMetadata(names ...string) Key {
	if len(names) == 0 || slices.Contains(names, "") {
		return nil
	}
	names = slices.Clone(names)
	return func(ctx context.Context, _ Call) string {
		parts := make([]string, len(names))
		for at, name := range names {
			parts[at] = web.Only(metadata.ValueFromIncomingContext(ctx, name))
		}
		return web.Joined(parts)
	}
}

// ByPeer returns a key that is the client's address: that of the connection or, behind a trusted
// proxy, that of the x-forwarded-for metadata. See [throttle.Proxies.Subject]. The peers of a unix
// socket that is not trusted, and those of a connection in memory, share one limit, which is logged
// once.
func ByPeer(proxies throttle.Proxies) Key {
	clients := web.ClientsBehind(proxies)
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
		return clients.Subject(address, forwarded)
	}
}
