"""Finds a client's address: the peer's, or the one that a trusted proxy reports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from ._errors import InvalidArgument

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_WITH_PORT = re.compile(r"(?:\[([^\]]*)\]|([0-9.]+))(?::([0-9]{1,5}))?", re.ASCII)
_PORT_MAX = 65535
# The whitespace that may surround an address in X-Forwarded-For; other whitespace may not.
_BLANK = " \t"
UNIX = "unix"


def _parse(text: str) -> _Address | None:
    text = text.strip(_BLANK)
    match = _WITH_PORT.fullmatch(text)
    if match is not None:
        if int(match.group(3) or 0) > _PORT_MAX:
            return None
        text = match.group(1) or match.group(2) or ""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _subject(address: _Address) -> str:
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


class ClientAddress:
    """Finds a client's address behind trusted proxies: addresses, networks, or ``unix``."""

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        if isinstance(trusted_proxies, str):
            raise InvalidArgument("trusted_proxies: expected a list of networks")
        names = list(trusted_proxies)
        self._unix = UNIX in names
        try:
            self._networks: list[_Network] = [
                ipaddress.ip_network(name, strict=False) for name in names if name != UNIX
            ]
        except ValueError as error:
            raise InvalidArgument(f"trusted_proxies: {error}") from None

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)

    def find(self, peer: str | None, forwarded: Sequence[str]) -> str | None:
        """Returns the client's address as a subject; None if it cannot be found.

        An IPv6 address becomes its /64 network. ``forwarded`` has the values of X-Forwarded-For, in
        order.
        """
        address = None if peer is None else _parse(peer)
        if address is None and not (peer in (None, "") and self._unix):
            return None
        if address is not None and not self._trusts(address):
            return _subject(address)
        hops = ",".join(forwarded)
        for hop in reversed(hops.split(",")) if hops.strip(_BLANK) else ():
            address = _parse(hop)
            if address is None:
                return None
            if not self._trusts(address):
                break
        return None if address is None else _subject(address)
