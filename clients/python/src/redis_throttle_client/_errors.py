"""What can go wrong, and whose fault it is.

A server that is away and a mistake of the program are told apart: the first is what ``on_error``
of a rule decides about, the second is raised whatever ``on_error`` says.
"""

from __future__ import annotations


class ThrottleError(Exception):
    """The root of everything this package raises."""


class InvalidArgument(ThrottleError, ValueError):
    """An argument that no call can be made of; the text begins with its name."""


class Unavailable(ThrottleError):
    """No decision: the server is away, too slow or refuses for the moment. ``__cause__`` has more.

    The call may have counted, so it is not to be repeated.
    """


class Unsent(Unavailable):
    """A connection to send the call on was not there in time: it was never sent."""


class CommandRejected(ThrottleError):
    """The server answered with an error that no repetition mends: alert on it."""


class ProtocolError(CommandRejected):
    """The server answered something that is no decision."""


# First words of error replies that pass by themselves. Every other one is a mistake: a kind that
# is not known here must not open a limit.
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

# Drivers raise these kinds as types of their own and cut the first word off the text.
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
    """Whether a driver's error is a mistake of the program, and not a server that is away."""
    types = [base.__name__ for base in type(error).__mro__]
    if _FULL in str(error) or not _PASSING_TYPES.isdisjoint(types):
        return False
    if not _MISTAKEN_TYPES.isdisjoint(types):
        return True
    if "ResponseError" in types or "DataError" in types:
        return str(error).split(" ", 1)[0] not in PASSING
    # Redis.exceptions: ConnectionError, TimeoutError and what the socket raised.
    return not isinstance(error, OSError | TimeoutError) and not (
        {"ConnectionError", "TimeoutError", "RedisClusterException", "ClusterError"} & set(types)
    )
