"""The errors.

There are two kinds. If the server is unavailable, the rule's ``on_error`` decides. An invalid
argument, or a call that the server refuses for good, is always raised.
"""

from __future__ import annotations

import copyreg
from typing import Any, Literal

Reason = Literal["timeout", "connection", "server", "overloaded", "circuit"]
"""Why the server did not decide.

``timeout``: the node, or the connection of the call, is silent. ``connection``: no connection could
be opened in time, or it was lost. ``server``: the server cannot decide now, for example while it
loads. ``overloaded``: there are too many calls, or the reply comes later than ``timeout_ms``, while
the node replies to others. ``circuit``: the breaker is open.
"""


class ThrottleError(Exception):
    """Base class of all errors of this package. They survive pickle and copy, without the cause."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the constructor with ``args``, but that may take other arguments. An
        # error that cannot be unpickled breaks a process pool.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class LimiterClosed(ThrottleError, RuntimeError):
    """The limiter is closed."""

    def __init__(self) -> None:
        super().__init__("the limiter is closed")


class InvalidArgument(ThrottleError, ValueError):
    """An invalid argument; the text begins with its name. No call was sent."""


class Unavailable(ThrottleError):
    """The server made no decision: it is unavailable, too slow, or temporarily refuses calls.

    ``reason`` says why, and ``__cause__`` is the driver's error. The call may have counted, so do
    not repeat it.
    """

    # How far a call came.
    stage = ""

    def __init__(self, text: str = "", reason: Reason = "connection") -> None:
        super().__init__(text)
        self.reason: Reason = reason
        # True for a failure of the node that its breaker has not counted.
        self.is_failure = reason in ("timeout", "connection", "server")
        # True if the server may have run the command.
        self.may_have_run = reason in ("timeout", "connection")


def counted(text: str, reason: Reason, *, sent: bool = False) -> Unavailable:
    """Returns an error that is counted already or is no failure. ``sent`` is true of a command."""
    error = Unavailable(text, reason)
    error.is_failure, error.may_have_run = False, sent
    if sent:
        error.stage = "connected, logged in, no reply"
    return error


class CommandRejected(ThrottleError):
    """The server refused the call, and a retry does not help: alert on it."""


class TooManyReservations(CommandRejected):
    """A key remembers as many reservations as it can. A call of several rules is then denied."""


class ProtocolError(CommandRejected):
    """The server's reply is not a decision."""


# The first words of temporary error replies. Any other reply is a rejection: ``on_error`` must not
# allow a call after an error of an unknown kind.
PASSING = frozenset([
    "OOM", "LOADING", "READONLY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "BUSY",
    "TRYAGAIN",
])  # fmt: skip
# Drivers raise these errors as their own types, without the first word of the text.
_PASSING_TYPES = frozenset([
    "OutOfMemoryError", "BusyLoadingError", "ReadOnlyError", "ClusterDownError", "MasterDownError",
    "TryAgainError",
])  # fmt: skip
_REJECTED_TYPES = frozenset([
    "AuthenticationError", "AuthenticationWrongNumberOfArgsError", "NoPermissionError",
    "AuthorizationError", "ModuleError", "ClusterCrossSlotError", "NoScriptError", "ExecAbortError",
])  # fmt: skip
_FULL = "max number of clients"
# The text of a server whose key remembers as many reservations as it can.
TOO_MANY = "too many reservations"


def types_of(error: BaseException) -> set[str]:
    """Returns the names of the classes of an error: two drivers have the same."""
    return {base.__name__ for base in type(error).__mro__}


def is_rejection(error: BaseException) -> bool:
    """Returns True if the server refuses the call for good, False if it is unavailable."""
    if isinstance(error, Unavailable):
        return False
    types = types_of(error)
    if _FULL in str(error) or not _PASSING_TYPES.isdisjoint(types):
        return False
    if not _REJECTED_TYPES.isdisjoint(types):
        return True
    if "ResponseError" in types or "DataError" in types:
        return str(error).split(" ", 1)[0] not in PASSING
    # Errors of an unavailable server: connection, timeout, cluster and socket errors.
    return not isinstance(error, OSError | TimeoutError) and not (
        {"ConnectionError", "TimeoutError", "RedisClusterException", "ClusterError"} & types
    )


def is_temporary(error: BaseException) -> bool:
    """Returns True for the error of a server that cannot decide now, if it is no rejection."""
    return is_reply(error) or _FULL in str(error)


_RETIRING = ("READONLY", "MASTERDOWN", "NOAUTH", "WRONGPASS")
_RETIRING_TYPES = frozenset(["ReadOnlyError", "MasterDownError", "AuthenticationError"])


def is_reply(error: BaseException) -> bool:
    """Returns True for an error reply. The connection can be used again after most of them."""
    return bool({"ResponseError", "BusyLoadingError", "AuthenticationError"} & types_of(error))


def retires(error: BaseException) -> bool:
    """Returns True for a reply after which other connections to the node are useless too.

    A demoted primary stays read-only, while its address may lead to the new primary. A connection
    without valid credentials does not request new ones.
    """
    return bool(_RETIRING_TYPES & types_of(error)) or str(error).startswith(_RETIRING)


def lost(error: Exception) -> Unavailable:
    """Returns the error of a call whose connection was lost."""
    return counted(f"no reply: {str(error) or type(error).__name__}", "connection", sent=True)


def repeated(error: Exception) -> Exception:
    """Returns the error for a reply that has retired its generation for another call already."""
    return error if is_rejection(error) else counted(f"no reply: {error}", "server")


# The errors of the drivers for a redirection, and the first words of the replies.
_REDIRECTIONS = {"MovedError": "MOVED", "AskError": "ASK"}


def judge(error: Exception) -> ThrottleError:
    """Converts a driver's error to an error of this package. The caller sets the cause."""
    if isinstance(error, ThrottleError):
        return error
    if is_rejection(error):
        word = _REDIRECTIONS.get(type(error).__name__)
        if word is not None:
            return CommandRejected(
                f"the server is a node of a cluster: use the cluster client ({word} {error})"
            )
        if TOO_MANY in str(error):
            return TooManyReservations(str(error))
        hint = ""
        if "unknown command" in str(error) and "RL." in str(error):
            hint = ": is the module loaded on this server?"
        return CommandRejected(f"{error}{hint}")
    reason: Reason = "server" if is_temporary(error) else "connection"
    return Unavailable(f"no reply: {str(error) or type(error).__name__}", reason)
