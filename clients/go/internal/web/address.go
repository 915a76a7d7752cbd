package web

import (
	"log/slog"
	"strings"
	"sync"

	throttle "redis-throttle.invalid/go"
)

// Clients finds the clients of requests by their addresses.
type Clients struct {
	proxies    throttle.Proxies
	trustsUnix bool
	noted      sync.Once
}

// ClientsBehind returns the clients of a service behind proxies.
func ClientsBehind(proxies throttle.Proxies) *Clients {
	_, trustsUnix := proxies.Subject("", []string{"192.0.2.1"})
	return &Clients{proxies: proxies, trustsUnix: trustsUnix}
}

// Subject returns the client's address, as [throttle.Proxies.Subject] does. A peer without one,
// such as a unix socket or a connection in memory, is the subject "peer:", which is logged once:
// its name would be the client's choice. The subject is empty if a trusted proxy names no address.
func (c *Clients) Subject(peer string, forwarded []string) string {
	if subject, ok := c.proxies.Subject(peer, forwarded); ok {
		return subject
	}
	_, isAddress := throttle.Proxies{}.Subject(peer, nil)
	isNamed := strings.Trim(strings.Join(forwarded, ","), " \t") != ""
	if isAddress || peer == "" && c.trustsUnix && isNamed {
		return ""
	}
	c.noted.Do(func() {
		slog.Warn("redis-throttle: a peer has no address, so its requests share one limit. Trust "+
			`the proxy "unix" if it is one on a unix socket; otherwise set a key.`, "peer", peer)
	})
	return "peer:"
}
