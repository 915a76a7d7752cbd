"""The errors.

A server that is away differs from a mistake of the program: for the first, a rule's ``on_error``
decides; the second is raised whatever ``on_error`` says.
"""

from __future__ import annotations


class ThrottleError(Exception):
    """Base class of all errors of this package."""


class InvalidArgument(ThrottleError, ValueError):
    """An invalid argument; the text begins with its name. No call was sent."""


class Unavailable(ThrottleError):
    """No decision: the server is away, too slow, or refuses for the moment. See ``__cause__``.

    The call may have counted, so do not repeat it.
    """


class Unsent(Unavailable):
    """No connection was free in time; the call was not sent."""


class CommandRejected(ThrottleError):
    """The server refused the call, and a repetition does not help: alert on it."""


class ProtocolError(CommandRejected):
    """The server's reply is not a decision."""


# First words of error replies that pass by themselves. Any other is a mistake: an unknown kind must
# not open a limit.
PASSING = frozenset(
    [
        "OOM",
        "LOADING",
        "READONLY",
        "MISCONF",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "BUSY",
        "TRYAGAIN",
    ]
)

# Drivers raise these kinds as their own types, and cut the first word off the text.
_PASSING_TYPES = frozenset(
    [
        "OutOfMemoryError",
        "BusyLoadingError",
        "ReadOnlyError",
        "ClusterDownError",
        "MasterDownError",
        "TryAgainError",
    ]
)
_MISTAKEN_TYPES = frozenset(
    [
        "AuthenticationError",
        "AuthenticationWrongNumberOfArgsError",
        "NoPermissionError",
        "AuthorizationError",
        "ModuleError",
        "ClusterCrossSlotError",
        "NoScriptError",
        "ExecAbortError",
    ]
)
_FULL = "max number of clients"


def is_mistake(error: BaseException) -> bool:
    """Returns True for a mistake of the program, False if the server is away."""
    types = [base.__name__ for base in type(error).__mro__]
    if _FULL in str(error) or not _PASSING_TYPES.isdisjoint(types):
        return False
    if not _MISTAKEN_TYPES.isdisjoint(types):
        return True
    if "ResponseError" in types or "DataError" in types:
        return str(error).split(" ", 1)[0] not in PASSING
    # The server is away: ConnectionError, TimeoutError, cluster errors, errors of the socket.
    return not isinstance(error, OSError | TimeoutError) and not (
        {"ConnectionError", "TimeoutError", "RedisClusterException", "ClusterError"} & set(types)
    )
