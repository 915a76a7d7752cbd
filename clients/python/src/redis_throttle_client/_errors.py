"""The errors.

There are two kinds. If the server is unavailable, the rule's ``on_error`` decides. A mistake in the
program or the server's setup is always raised.
"""

from __future__ import annotations


class ThrottleError(Exception):
    """Base class of all errors of this package."""


class InvalidArgument(ThrottleError, ValueError):
    """An invalid argument; the text begins with its name. No call was sent."""


class Unavailable(ThrottleError):
    """The server made no decision: it is unavailable, too slow, or temporarily refuses calls.

    See ``__cause__``. The call may have counted, so do not repeat it.
    """


class Unsent(Unavailable):
    """No connection was free in time; the call was not sent."""


class CommandRejected(ThrottleError):
    """The server refused the call, and a retry does not help: alert on it."""


class ProtocolError(CommandRejected):
    """The server's reply is not a decision."""


# The first words of temporary error replies. Any other reply is a mistake: ``on_error`` must not
# allow a call after an error of an unknown kind.
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

# Drivers raise these errors as their own types, without the first word of the text.
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
    """Returns True for a mistake in the program or setup, False for an unavailable server."""
    types = [base.__name__ for base in type(error).__mro__]
    if _FULL in str(error) or not _PASSING_TYPES.isdisjoint(types):
        return False
    if not _MISTAKEN_TYPES.isdisjoint(types):
        return True
    if "ResponseError" in types or "DataError" in types:
        return str(error).split(" ", 1)[0] not in PASSING
    # Errors of an unavailable server: connection, timeout, cluster and socket errors.
    return not isinstance(error, OSError | TimeoutError) and not (
        {"ConnectionError", "TimeoutError", "RedisClusterException", "ClusterError"} & set(types)
    )
