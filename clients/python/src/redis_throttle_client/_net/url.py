"""Clients from a URL, with whose settings a limiter opens its connections."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from .._rules.errors import InvalidArgument, judge
from .._rules.options import Options, suggestion
from .dial import Dial

# The schemes, as the drivers and the programs of this project have them, and the drivers' own.
_SCHEMES = {
    "redis": "redis", "rediss": "rediss", "unix": "unix", "redis+unix": "unix",
    "valkey": "redis", "valkeys": "rediss", "valkey+unix": "unix",
}  # fmt: skip
EXPECTED = "url: expected redis://[user:password@]host[:port][/db], rediss:// or unix:///path"
# The names of the credentials in the query of a socket's URL in Rust, as the gateway has them.
_CREDENTIALS = {"user": "username", "pass": "password"}
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_DATABASE = re.compile(r"/?[0-9]*", re.ASCII)


def client_of(url: object, *, cluster: object, is_async: bool, dial_s: float) -> Any:
    """Returns a client without open connections, of redis-py or of valkey-py if only that is there.

    The sync client of a cluster reads its map here. No error shows the URL, which may have a
    password.
    """
    if not isinstance(cluster, bool):
        raise InvalidArgument("cluster: expected True or False")
    drivers_url = _drivers_url(url)
    if cluster and drivers_url.startswith("unix:"):
        raise InvalidArgument("url: expected a host, because a cluster has several nodes")
    package, name = _driver()
    module = importlib.import_module(f"{package}.asyncio" if is_async else package)
    try:
        client = getattr(module, name).from_url(drivers_url)
        pool = client.connection_pool
        # The drivers would refuse an unknown setting in the query only when they connect.
        Dial(pool.connection_class, pool.connection_kwargs, dial_s, wait=is_async).to(None)()
    except Exception as error:
        raise InvalidArgument(f"url: {_problem_of(error)}") from None
    if not cluster:
        return client
    if pool.connection_kwargs.get("db"):
        raise InvalidArgument("url: expected no database, because a cluster has only one")
    times = {"socket_timeout": dial_s, "socket_connect_timeout": dial_s}
    try:
        nodes = getattr(module, f"{name}Cluster").from_url(drivers_url, **times)
    except Exception as error:
        raise judge(error) from error
    if not is_async:
        _hang_up(nodes)
    return nodes


def _problem_of(error: Exception) -> str:
    """Returns the text of an error of the driver, which has no words for an unknown setting."""
    match = _UNKNOWN.search(str(error)) if isinstance(error, TypeError) else None
    if match is None:
        return str(error)
    name = match[1]
    if name in Options.__slots__:
        return f"{name} is an option of the limiter, such as from_url(url, {name}=...)"
    return f"the driver has no setting {name}{suggestion(name, Options.__slots__)}"


def _hang_up(cluster: Any) -> None:
    """Closes the connections on which a driver has read the map."""
    cluster.close()
    # Old drivers forget that of the node that was named.
    for node in cluster.nodes_manager.startup_nodes.values():
        opened = getattr(node, "redis_connection", None) or getattr(node, "valkey_connection", None)
        if opened is not None:
            opened.connection_pool.disconnect()


def _drivers_url(url: object) -> str:
    """Returns a URL as the drivers read it, with a scheme that all of them have."""
    try:
        # Some properties of a URL raise an error when they are read, with a part of the text.
        parts = urlsplit(url if isinstance(url, str) else "")
        scheme, is_valid = _SCHEMES[parts.scheme], not parts.fragment and parts.port != 0
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except (KeyError, ValueError):
        raise InvalidArgument(EXPECTED) from None
    # The drivers would take another path for no database, and drop the host of a socket.
    if scheme == "unix":
        is_valid &= parts.hostname is None and parts.path.strip("/") != ""
    else:
        is_valid &= _DATABASE.fullmatch(parts.path) is not None
    has_host = "://" in str(url)
    if not is_valid or not (has_host or (scheme == "unix" and parts.path[0] == "/")):
        raise InvalidArgument(EXPECTED) from None
    named = [(_CREDENTIALS.get(name, name), value) for name, value in query]
    return f"{scheme}://{parts.netloc}{parts.path}?{urlencode(named)}".rstrip("?")


def _driver() -> tuple[str, str]:
    """Returns the package of the driver that is installed, and the name of its client."""
    if importlib.util.find_spec("redis") is None and importlib.util.find_spec("valkey"):
        return "valkey", "Valkey"
    return "redis", "Redis"
