package throttle

import (
	"net/netip"
	"strconv"
	"strings"
)

// Proxies are the trusted proxies of a service. They find the address of a client.
type Proxies struct {
	networks   []netip.Prefix
	trustsUnix bool
}

// TrustProxies returns the proxies with these addresses and networks, such as "10.0.0.0/8"; "unix"
// is a peer without an address. IPv4 written as IPv6, such as "::ffff:10.0.0.0/104", is IPv4; a
// wider network of that form is an error. The zone of an address, as in "fe80::1%eth0", is ignored.
func TrustProxies(networks ...string) (Proxies, error) {
	var p Proxies
	for _, network := range networks {
		if network == "unix" {
			p.trustsUnix = true
			continue
		}
		prefix, ok := plainNetwork(network)
		if !ok {
			return Proxies{}, invalid("trustedProxies", "addresses or networks such as 10.0.0.0/8")
		}
		p.networks = append(p.networks, prefix)
	}
	return p, nil
}

// Subject returns a client's address as a subject: that of the peer or, behind a trusted proxy, the
// rightmost address of the X-Forwarded-For fields that is not trusted. The leftmost can be anything
// that the client wrote. IPv6 is cut to its /64, which belongs to one client; behind NAT64
// (64:ff9b::/96) the client is the embedded IPv4. It returns false if there is no address, or if a
// trusted proxy sends an entry that is no address.
func (p Proxies) Subject(peer string, forwarded []string) (string, bool) {
	from, ok := plainAddress(peer)
	isTrusted := ok && p.trusts(from)
	if peer == "" {
		isTrusted = p.trustsUnix
	}
	joinedFields := strings.Join(forwarded, ",")
	if isTrusted && strings.Trim(joinedFields, " \t") != "" {
		entries := strings.Split(joinedFields, ",")
		for at := len(entries) - 1; at >= 0; at-- {
			from, ok = plainAddress(strings.Trim(entries[at], " \t"))
			if !ok || !p.trusts(from) {
				break
			}
		}
	}
	if !ok {
		return "", false
	}
	if nat64.Contains(from) {
		bytes := from.As16()
		from = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if from.Is4() {
		return from.String(), true
	}
	network, _ := from.Prefix(64)
	return network.String(), true
}

// nat64 has the addresses of IPv4 clients behind a translator (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func (p Proxies) trusts(address netip.Addr) bool {
	for _, network := range p.networks {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// plainAddress reads an address without its port, brackets and zone; ::ffff:a.b.c.d is IPv4.
func plainAddress(text string) (netip.Addr, bool) {
	host, port, hasPort := text, "", false
	if inside, rest, ok := strings.Cut(text, "]"); ok && strings.HasPrefix(inside, "[") {
		host = inside[1:]
		port, hasPort = strings.CutPrefix(rest, ":")
		if rest != "" && !hasPort {
			return netip.Addr{}, false
		}
	} else if strings.Count(text, ":") == 1 {
		host, port, hasPort = strings.Cut(text, ":")
	}
	if hasPort && !isPort(port) {
		return netip.Addr{}, false
	}
	return bareAddress(host)
}

// bareAddress reads an address and its zone, which only IPv6 has. Package netip refuses the zone of
// a mapped address, and accepts a second % in a zone.
func bareAddress(text string) (netip.Addr, bool) {
	host, zone, hasZone := strings.Cut(text, "%")
	address, err := netip.ParseAddr(host)
	isWrong := hasZone && (address.Is4() || zone == "" || strings.Contains(zone, "%"))
	if err != nil || isWrong {
		return netip.Addr{}, false
	}
	return address.Unmap(), true
}

// plainNetwork reads an address or a network. One of mapped addresses becomes one of IPv4, as the
// addresses that it is compared with do.
func plainNetwork(text string) (netip.Prefix, bool) {
	if !strings.Contains(text, "/") {
		address, ok := bareAddress(text)
		return netip.PrefixFrom(address, address.BitLen()), ok
	}
	prefix, err := netip.ParsePrefix(text)
	if err == nil && prefix.Addr().Is4In6() {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), err == nil && prefix.IsValid()
}

func isPort(text string) bool {
	if len(text) > 5 || strings.Trim(text, "0123456789") != "" {
		return false
	}
	number, err := strconv.Atoi(text)
	return err == nil && number <= 65_535
}
