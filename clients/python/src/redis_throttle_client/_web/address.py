"""Finds a client's address: the peer's, or the one that a trusted proxy reports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from .._rules.errors import InvalidArgument

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_WITH_PORT = re.compile(r"(?:\[([^\]]*)\]|([0-9.]+))(?::([0-9]{1,5}))?", re.ASCII)
_PORT_MAX = 65535
# The length of a network. The library would also read netmasks, and a leading zero.
_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
# The whitespace that may surround an address in X-Forwarded-For; other whitespace may not.
BLANK = " \t"
UNIX = "unix"
# The bits before the IPv4 address in a mapped address.
_MAPPED_BITS = 96
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_MAX = 2**32 - 1


def _address(text: str) -> _Address | None:
    """Returns an address without its zone, which only IPv6 has. A mapped address is IPv4."""
    text, percent, zone = text.partition("%")
    if percent and (not zone or "%" in zone or ":" not in text):
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _parse(text: str) -> _Address | None:
    match = _WITH_PORT.fullmatch(text)
    if match is not None:
        if int(match.group(3) or 0) > _PORT_MAX:
            return None
        text = match.group(1) or match.group(2) or ""
    return _address(text)


def _network(name: object) -> _Network:
    """Returns a trusted network, or the network of one address.

    A network of mapped addresses is one of IPv4, as its addresses are.
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"trusted_proxies: expected texts, not {name!r}")
    bad = InvalidArgument(f"trusted_proxies: expected an address or a network, not {name!r}")
    if "/" not in name:
        address = _address(name)
        if address is None:
            raise bad
        return ipaddress.ip_network(address)
    # The zone of a network would be ignored.
    if "%" in name or _LENGTH.fullmatch(name.partition("/")[2]) is None:
        raise bad
    try:
        network = ipaddress.ip_network(name, strict=False)
        mapped = getattr(ipaddress.ip_address(name.partition("/")[0]), "ipv4_mapped", None)
    except ValueError:
        raise bad from None
    if mapped is None:
        return network
    if network.prefixlen < _MAPPED_BITS:
        raise InvalidArgument(
            f"trusted_proxies: expected at least /{_MAPPED_BITS} for the mapped {name!r}"
        )
    return ipaddress.ip_network((mapped, network.prefixlen - _MAPPED_BITS), strict=False)


def _subject(address: _Address) -> str:
    if address.version == 4:
        return str(address)
    if address in _NAT64:
        # All clients behind a translator share its network.
        return str(ipaddress.IPv4Address(int(address) & _IPV4_MAX))
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class ClientAddress:
    """Finds a client's address behind trusted proxies: addresses, networks, or ``unix``."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        if isinstance(trusted_proxies, str) or not isinstance(trusted_proxies, Iterable):
            raise InvalidArgument("trusted_proxies: expected a list of networks")
        names = list(trusted_proxies)
        self.trusts_unix = UNIX in names
        self._networks = [_network(name) for name in names if name != UNIX]

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def find(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """Returns the client's address as a subject; None if it cannot be found.

        An IPv6 address becomes its /64 network, or the IPv4 address in it behind NAT64.
        ``forwarded`` has the values of X-Forwarded-For, in order.
        """
        address = None if peer is None else _parse(peer)
        if address is None and not (peer in (None, "") and self.trusts_unix):
            return None
        if address is not None and not self._trusts(address):
            return _subject(address)
        hops = ",".join(forwarded)
        for hop in reversed(hops.split(",")) if hops.strip(BLANK) else ():
            address = _parse(hop.strip(BLANK))
            if address is None:
                return None
            if not self._trusts(address):
                break
        return None if address is None else _subject(address)
