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
// is a peer without an address.
func TrustProxies(networks ...string) (Proxies, error) {
	var p Proxies
	for _, network := range networks {
		if network == "unix" {
			p.trustsUnix = true
			continue
		}
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			var address netip.Addr
			if address, err = netip.ParseAddr(network); err == nil {
				prefix = netip.PrefixFrom(address, address.BitLen())
			}
		}
		if err != nil || prefix.Addr().Zone() != "" {
			return Proxies{}, invalid("trustedProxies", "addresses or networks such as 10.0.0.0/8")
		}
		p.networks = append(p.networks, prefix.Masked())
	}
	return p, nil
}

// Subject returns a client's address as a subject: that of the peer or, behind a trusted proxy, the
// rightmost address of the X-Forwarded-For fields that is not trusted. The leftmost can be anything
// that the client wrote. IPv6 is cut to its /64, which belongs to one client. It returns false if
// there is no address, or if a trusted proxy sends an entry that is no address.
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
	if from.Is4() {
		return from.String(), true
	}
	network, _ := from.Prefix(64)
	return network.String(), true
}

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
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false
	}
	return address.Unmap().WithZone(""), true
}

func isPort(text string) bool {
	if len(text) > 5 || strings.Trim(text, "0123456789") != "" {
		return false
	}
	number, err := strconv.Atoi(text)
	return err == nil && number <= 65_535
}
