"""Opens connections with the settings of the application's client.

Drivers repeat failed calls, ten times by default, and each repeated call counts. So the limiter
takes only the settings from the client (address, TLS, credentials, Sentinel, the map of a cluster)
and has its own sockets, on which a call is sent once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from .._rules.errors import InvalidArgument

Node = tuple[str, int] | None
# The maximum numbers of connections to one node: being opened at the same time, and in all. Calls
# of a burst wait for these, because one connection per call would slow down the server and the
# loop.
MOST_DIALS = 8
MOST_SOCKETS = 64


# The renewals of leases and reservations that may be in flight to one node, and the ends of these,
# besides all other calls. Neither wait for the others.
RENEWAL_SLOTS, END_SLOTS = 8, 32
# The arguments of a client's pool that are not used: those that would repeat or wait, that belong
# to the pool itself, or that would encode one subject in two ways.
_LEFT_OUT = (
    "retry", "retry_on_error", "retry_on_timeout", "health_check_interval", "decode_responses",
    "maint_notifications_config", "maint_notifications_pool_handler", "event_dispatcher",
    "oss_cluster_maint_notifications_handler", "socket_timeout", "socket_connect_timeout",
    "encoding", "encoding_errors",
)  # fmt: skip


def _driver(connection_class: type) -> str:
    for base in connection_class.__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("redis", "valkey"):
            return package
    raise InvalidArgument("client: expected a client of redis-py or valkey-py")


class Dial:
    """Opens connections that send each call once."""

    def __init__(
        self, connection_class: type, kwargs: dict[str, Any], patience_s: float, *, wait: bool
    ) -> None:
        package = _driver(connection_class)
        module = f"{package}.asyncio.retry" if wait else f"{package}.retry"
        retry = importlib.import_module(module).Retry
        no_backoff = importlib.import_module(f"{package}.backoff").NoBackoff
        self._class = connection_class
        self._kwargs = {name: value for name, value in kwargs.items() if name not in _LEFT_OUT}
        self.patience_s = patience_s
        self._kwargs |= {
            "retry": retry(no_backoff(), 0),
            "socket_timeout": None if wait else patience_s,
            "socket_connect_timeout": patience_s,
        }
        errors = importlib.import_module(f"{package}.exceptions")
        self.moved, self.ask = errors.MovedError, errors.AskError
        self.response_error = errors.ResponseError

    def to(self, node: Node) -> Callable[[], Any]:
        """Returns a function that opens connections to a node of a cluster or to the server."""
        kwargs = self._kwargs
        if node is not None:
            kwargs = kwargs | {"host": node[0], "port": node[1]}
        return lambda: self._class(**kwargs)


class Login:
    """Notes how far the dial of a connection comes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # True after the connection was opened, and after the server has replied to a command on it.
        self.began = self.is_heard = False

    @property
    def stage(self) -> str:
        """How far the dial came."""
        return "connected, not logged in" if self.began else "not connected"

    def watch(self) -> None:
        """Notes the replies to the commands of the login."""
        read = self._connection.read_response

        def reading(*args: Any, **options: Any) -> Any:
            self.began = True
            reply = read(*args, **options)
            self.is_heard = True
            return reply

        async def reading_later(*args: Any, **options: Any) -> Any:
            self.began = True
            reply = await read(*args, **options)
            self.is_heard = True
            return reply

        self._connection.read_response = reading_later if iscoroutinefunction(read) else reading

    def end(self) -> None:
        """Ends the notes: later replies are read as by the driver alone."""
        self._connection.__dict__.pop("read_response", None)
